// SPDX-License-Identifier: Apache-2.0
// Which launch a kernel belongs to. CUPTI numbers a process's API calls, the recorder sees its
// launches in order: both sequences are the same one, as far as both were recorded. Grid, function
// and graph of each pair must agree, or it is no pair.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace collwire::gpu {

// A launch of NCCL, as the host probe saw it just after the driver's call.
struct LaunchFact {
    std::uint64_t time_ns = 0;
    std::uint32_t channels = 0; // with work; 0: not known
    std::uint8_t func = 0xff;   // enum cw_nccl_func of all its tasks; CW_NCCL_FUNC_UNKNOWN
    bool is_replay = false;     // of a CUDA graph
};

// A kernel of NCCL that ran.
struct KernelFact {
    std::uint64_t start_ns = 0; // 0: it had not begun when its trace ended
    std::uint64_t end_ns = 0;   // 0: it still ran then
    std::uint64_t graph_node = 0;
    std::uint32_t correlation = 0;
    std::uint32_t blocks = 0;
    std::uint8_t func = 0xff;
};

// A time in which the guest was armed: from between the first two to between the last two.
struct TracedSpan {
    std::uint64_t arming_begin_ns = 0, armed_ns = 0;
    std::uint64_t disarming_begin_ns = UINT64_MAX; // UINT64_MAX: until the end of the recording
};

enum class Match : std::uint8_t {
    None,   // no launch: it was not recorded, or the evidence contradicts
    ByTime, // several places in the order are possible, the times decide
    Exact,  // the only place in the order, and all evidence agrees
};

struct KernelMatch {
    std::uint32_t launch = UINT32_MAX;
    Match match = Match::None;
};

struct KernelJoin {
    std::vector<KernelMatch> kernels; // as given
    std::size_t exact = 0, by_time = 0;
    std::size_t contradicted = 0;    // kernels whose evidence contradicts the launch at their place
    std::size_t without_launch = 0;  // kernels
    std::size_t traced_launches = 0; // that began while the guest was armed
    std::size_t without_kernel = 0;  // of these
};

// Of one process and device. Launches in time order. Kernels in any order.
[[nodiscard]] KernelJoin join_kernels(std::span<const LaunchFact> launches,
                                      std::span<const KernelFact> kernels,
                                      std::span<const TracedSpan> spans);

} // namespace collwire::gpu
