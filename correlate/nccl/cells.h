// SPDX-License-Identifier: Apache-2.0
// How NCCL 2.22 and later divides collectives among channels: enqueue.cc scheduleCollTasksToPlan.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace collwire::nccl {

// One channel's part of a collective.
struct ChannelShare {
    std::uint32_t channel = 0;
    std::uint64_t bytes = 0; // of the count; AllGather, ReduceScatter: of one rank's share
    friend bool operator==(const ChannelShare &, const ChannelShare &) = default;
};

struct CellTask {
    std::uint64_t bytes = 0;
    std::uint64_t traffic_per_byte = 0; // not 0; ncclFuncTrafficPerByte
    std::uint64_t cell_bytes = 0;       // not 0
};

struct CellRules {
    std::uint64_t channels = 0;        // ncclComm::nChannels
    std::uint64_t channel_traffic = 0; // that fills a channel; not 0
    // 2.23 and later: cells are never split, neither by the room of a channel nor in its traffic.
    bool has_whole_cells = true;
};

// By task. The last channel of a task is the first one of the next, if it has room. Empty: NCCL
// never divides such tasks so.
[[nodiscard]] std::vector<std::vector<ChannelShare>> deal_cells(const CellRules &rules,
                                                                std::span<const CellTask> tasks);

} // namespace collwire::nccl
