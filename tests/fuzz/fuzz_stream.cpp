// SPDX-License-Identifier: Apache-2.0
// From records to the operations of a stream, and to where ranks stood. The input is a stream of
// records as they lie in a block, checksums and compression left out; each NODE record begins
// another capture.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "correlate/stall/judge.h"
#include "correlate/stream/node_standing.h"
#include "correlate/stream/standing_joiner.h"
#include "correlate/stream/world.h"

// libFuzzer's name. NOLINTNEXTLINE(readability-identifier-naming)
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    using namespace collwire;
    std::uint64_t operations = 0;
    stream::World world(
        [&](const stream::Communicator &communicator, const stream::Operation &operation) {
            ++operations;
            if (communicator.n_ranks <= 0 || operation.calls == 0)
                std::abort();
        });
    std::span<const std::byte> rest = std::as_bytes(std::span(data, size));
    stream::StandingJoiner joiner;
    std::optional<stream::NodeStanding> node;
    capture::ReadSummary summary;
    std::size_t capture = 0;
    std::vector<std::byte> record;
    while (rest.size() >= sizeof(cw_header)) {
        cw_header header;
        std::memcpy(&header, rest.data(), sizeof(header));
        // A reader lets no other length through.
        header.length_bytes = static_cast<std::uint32_t>(
            std::clamp<std::size_t>(header.length_bytes, sizeof(header), rest.size()) &
            ~std::size_t{7});
        record.assign(rest.begin(), rest.begin() + header.length_bytes);
        std::memcpy(record.data(), &header, sizeof(header));
        rest = rest.subspan(header.length_bytes);
        capture += header.kind == CW_KIND_NODE ? 1 : 0;
        world.add(capture, header, record);
        if (world.is_ahead(capture) && header.cpu % 2 == 0)
            world.give_up(capture);
        if (header.kind == CW_KIND_END)
            world.end(capture);
        if (header.kind == CW_KIND_NODE || !node) {
            if (node)
                joiner.add(node->finish());
            node.emplace("");
        }
        node->add(header, record);
        summary.last_time_ns = header.time_ns;
        node->end_capture(summary);
    }
    world.flush();
    if (node)
        joiner.add(node->finish());
    if (joiner.needs_model().empty())
        (void)stall::judge(joiner.take());
    return 0;
}
