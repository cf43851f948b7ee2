// SPDX-License-Identifier: Apache-2.0
#include "userspace/capture/older_segments.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <tuple>

#include "correlate/capture/format.h"
#include "correlate/capture/reader.h"
#include "userspace/capture/file_name.h"

namespace collwire::capture {
namespace {

// The file up to the end of its first block; the node record is in it.
std::optional<FoundFile> look_at_first_block(Storage &storage, const std::string &name) {
    constexpr std::size_t HEADERS = sizeof(FileHeader) + sizeof(BlockHeader);
    FoundFile found;
    if (storage.look(name, HEADERS, found) != 0 || found.head.size() < HEADERS)
        return std::nullopt;
    BlockHeader block;
    std::memcpy(&block, found.head.data() + sizeof(FileHeader), sizeof(block));
    if (block.magic != BLOCK_MAGIC || block.payload_bytes > MAX_BLOCK_PAYLOAD_BYTES ||
        storage.look(name, HEADERS + block.payload_bytes, found) != 0)
        return std::nullopt;
    return found;
}

} // namespace

std::vector<OlderSegment> find_older_segments(Storage &storage, std::string_view host) {
    struct Candidate {
        OlderSegment segment;
        std::uint32_t number;
    };
    std::vector<Candidate> candidates;
    for (const std::string &name : storage.list()) {
        if (!is_name_of_host(name, host))
            continue;
        const auto found = look_at_first_block(storage, name);
        if (!found)
            continue;
        std::optional<cw_node> node;
        const auto summary = read_capture(
            found->head, [&node](const cw_header &header, std::span<const std::byte> record) {
                if (!node && header.kind == CW_KIND_NODE)
                    node = record_as<cw_node>(record);
            });
        if (!summary || !node || (node->flags & CW_NODE_ROTATES) == 0 ||
            text_of(node->hostname) != host)
            continue;
        candidates.push_back(
            {{name, found->size_bytes, summary->start_realtime_ns}, node->segment});
    }
    std::ranges::sort(candidates, {}, [](const Candidate &candidate) {
        return std::tuple(candidate.segment.start_realtime_ns, candidate.number,
                          std::string_view(candidate.segment.name));
    });
    std::vector<OlderSegment> segments;
    for (Candidate &candidate : candidates)
        segments.push_back(std::move(candidate.segment));
    return segments;
}

} // namespace collwire::capture
