// SPDX-License-Identifier: Apache-2.0
#include "tests/cupti_double/record.h"

#include <cstring>

namespace collwire::cupti_double {

KernelRecord record_of(const KernelLaunch &launch, std::uint32_t kind) {
    KernelRecord record{};
    record.kind = kind;
    record.device = launch.device;
    record.context = launch.context;
    record.stream = launch.stream;
    for (unsigned i = 0; i < launch.grid.size(); i++) {
        record.grid[i] = static_cast<std::int32_t>(launch.grid[i]);
        record.block[i] = static_cast<std::int32_t>(launch.block[i]);
        record.cluster[i] = launch.cluster[i];
    }
    record.correlation = launch.correlation;
    record.grid_id = static_cast<std::int64_t>(launch.id);
    record.name = launch.name;
    record.graph_node = launch.graph_node;
    record.graph = launch.graph;
    record.channel = launch.channel;
    return record;
}

Result next_record(std::uint8_t *buffer, std::size_t valid_bytes, std::uint8_t **record,
                   std::size_t record_bytes) {
    if (buffer == nullptr || record == nullptr)
        return Result::InvalidParameter;
    std::size_t at = 0;
    if (*record != nullptr) {
        const std::uint8_t *end = buffer + valid_bytes;
        if (*record < buffer || *record >= end)
            return Result::InvalidParameter;
        at = static_cast<std::size_t>(*record - buffer) + record_bytes;
    }
    if (at + record_bytes > valid_bytes)
        return Result::MaxLimitReached;
    std::uint32_t kind = 0;
    std::memcpy(&kind, buffer + at, sizeof kind);
    if (kind != KIND_KERNEL && kind != KIND_CONCURRENT_KERNEL)
        return Result::InvalidKind;
    *record = buffer + at;
    return Result::Success;
}

} // namespace collwire::cupti_double
