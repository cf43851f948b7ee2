// SPDX-License-Identifier: Apache-2.0
// Where each rank's time of an operation went: the four phases between its launch and its end.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace collwire::gpu {

// No bound of an error is known. Sums of some such do not overflow.
inline constexpr std::uint64_t NO_BOUND_NS = UINT64_MAX / 8;

// One rank's kernel of an operation, all times on one clock.
struct RankKernel {
    std::int32_t rank = -1;
    std::uint64_t launch_ns = 0; // 0: not known
    std::uint64_t start_ns = 0;
    std::uint64_t end_ns = 0; // 0: it still ran
    // The clock that they were read on, and how far it may be off against that of others. Times of
    // one clock are compared as they are.
    std::uint32_t clock = 0;
    std::uint64_t clock_error_ns = 0;
};

// Nanoseconds. The sum of the last three is the time from the rank's launch to its kernel's end.
struct RankPhases {
    std::int32_t rank = -1;
    std::uint64_t late_host_ns = 0; // its launch after the first rank's launch
    std::uint64_t late_gpu_ns =
        0; // from its launch to its kernel's start: queued behind other kernels
    std::uint64_t waiting_ns = 0; // from its kernel's start to the last rank's kernel's start
    std::uint64_t moving_ns = 0;  // from then to its kernel's end
    // How far the clocks allow the above to be off: lateness, and both of waiting and moving.
    std::uint64_t late_host_error_ns = 0;
    std::uint64_t meeting_error_ns = 0;
    bool has_launch = false; // the first two are known
    bool is_running = false; // moving_ns is not known
};

// All ranks of one operation.
[[nodiscard]] std::vector<RankPhases> phases_of(std::span<const RankKernel> kernels);

// The rank whose kernel started last, and by how much after the one before it: the rank that the
// others waited for. -1: fewer than two ranks.
struct LastRank {
    std::int32_t rank = -1;
    std::uint64_t behind_ns = 0; // the second last
    std::uint64_t behind_first_ns = 0;
    bool is_certain = false; // later than each other one by more than the clocks may be off
};
[[nodiscard]] LastRank last_rank_of(std::span<const RankKernel> kernels);

} // namespace collwire::gpu
