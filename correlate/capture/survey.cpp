// SPDX-License-Identifier: Apache-2.0
#include "correlate/capture/survey.h"

#include <algorithm>

#include "collwire/node_records.h"
#include "collwire/record_kinds.h"

namespace collwire::capture {

Result<Survey> survey(std::uint64_t file_bytes, const ReadAt &read) {
    Survey found;
    std::uint64_t begin_ns = 0, realtime_ns = 0;
    const auto summary = read_chosen_blocks(
        file_bytes, read, [](const BlockHeader &block) { return block.sequence == 0; },
        [&](const cw_header &header, std::span<const std::byte> record) {
            if (found.has_node || header.kind != CW_KIND_NODE)
                return;
            const auto node = record_as<cw_node>(record);
            found.session_id = node.session_id;
            found.segment = node.segment;
            found.has_node = node.realtime_ns != 0;
            begin_ns = header.time_ns;
            realtime_ns = node.realtime_ns;
        });
    if (!summary)
        return summary.failure();
    if (!found.has_node)
        return found;
    found.begin_ns = realtime_ns;
    // A record may be of something older than the recording: its start is the node's.
    found.end_ns = realtime_ns + (std::max(summary->last_time_ns, begin_ns) - begin_ns);
    return found;
}

} // namespace collwire::capture
