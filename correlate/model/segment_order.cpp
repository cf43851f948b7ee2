// SPDX-License-Identifier: Apache-2.0
#include "correlate/model/segment_order.h"

#include <algorithm>
#include <cstring>

#include "collwire/node_records.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "correlate/capture/format.h"
#include "correlate/capture/reader.h"

namespace collwire::model {

using capture::BlockHeader;
using capture::FileHeader;

static_assert(FIRST_BYTES == sizeof(FileHeader) + sizeof(BlockHeader));

std::size_t bytes_for_order(std::span<const std::byte> first_bytes) {
    if (first_bytes.size() < FIRST_BYTES)
        return first_bytes.size();
    BlockHeader block;
    std::memcpy(&block, first_bytes.data() + sizeof(FileHeader), sizeof(block));
    return FIRST_BYTES + std::min(block.payload_bytes, capture::MAX_BLOCK_PAYLOAD_BYTES);
}

SegmentOrder segment_order(std::span<const std::byte> beginning) {
    SegmentOrder order;
    bool found = false;
    const auto summary = capture::read_capture(
        beginning, [&](const cw_header &header, std::span<const std::byte> record) {
            if (found || header.kind != CW_KIND_NODE)
                return;
            const auto node = capture::record_as<cw_node>(record);
            order = {node.session_id, node.segment};
            found = true;
        });
    return summary ? order : SegmentOrder{};
}

} // namespace collwire::model
