// SPDX-License-Identifier: Apache-2.0
// Which launch a kernel belongs to whose times NCCL's profiler gave, by channel. NCCL says when it
// posted the kernel's plan, the recorder saw the same plan given to the proxies just after: on one
// communicator both sequences are the same one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "correlate/gpu/join_kernels.h"

namespace collwire::gpu {

// An operation's work on one channel.
struct ChannelFact {
    std::uint64_t plan = 0; // number of the execution of a kernel plan; 0: not known
    std::uint64_t posted_ns = 0;
    std::uint64_t start_ns = 0;
    std::uint64_t end_ns = 0; // 0: it still ran
    std::uint16_t channel = 0;
    std::uint8_t func = 0xff; // enum cw_nccl_func
};

// A kernel: all channels of one execution of a kernel plan.
struct PlanFact {
    std::uint64_t posted_ns = 0;
    std::uint64_t start_ns = 0; // of the first channel
    std::uint64_t end_ns = 0;   // of the last one; 0: one still ran
    std::uint32_t channels = 0;
    std::uint8_t func = 0xff; // of all its operations; CW_NCCL_FUNC_UNKNOWN: several
};

// In the order in which they were posted. Channels without a plan are in none.
[[nodiscard]] std::vector<PlanFact> plans_of(std::span<const ChannelFact> channels);

// Of one communicator. Launches in time order, plans as plans_of() gives them.
[[nodiscard]] KernelJoin join_plans(std::span<const LaunchFact> launches,
                                    std::span<const PlanFact> plans,
                                    std::span<const TracedSpan> spans);

} // namespace collwire::gpu
