// SPDX-License-Identifier: Apache-2.0
// How NCCL 2.24 and later divides the collectives of a launch among the channels of a communicator.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collwire/nccl_launch_records.h"
#include "correlate/nccl/cells.h"

namespace collwire::nccl {

struct ShareRules {
    std::uint32_t version = 0; // 22403 and later
    std::int32_t n_ranks = 0;
    std::uint32_t channels = 0; // ncclComm::nChannels
    // NCCL's parameters Nthreads, Ll128Nthreads; 0 or less: its default.
    std::int64_t n_threads = 0;
    std::int64_t n_ll128_threads = 0;
};

// `tasks`: collectives of a ring or tree, none empty, in NCCL's order. `wanted`: channels that NCCL
// allows all of them together. By task; empty: the tasks do not fit (they were no such launch).
[[nodiscard]] std::vector<std::vector<ChannelShare>>
share_out(const ShareRules &rules, std::span<const cw_nccl_shape_task> tasks, std::uint32_t wanted);

// Whether NCCL may allow a launch of this single task as many channels: enqueue.cc
// topoGetAlgoInfo. NCCL's number of threads for Simple, 256 or 512, is not recorded.
[[nodiscard]] bool may_want(const ShareRules &rules, const cw_nccl_shape_task &task,
                            std::uint32_t wanted);

} // namespace collwire::nccl
