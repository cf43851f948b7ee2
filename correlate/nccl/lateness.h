// SPDX-License-Identifier: Apache-2.0
// How late a rank calls collectives, compared with the other ranks.
#pragma once

#include <cstdint>

namespace collwire::nccl {

// A call is late from here on, in ns after the median rank of its operation.
inline constexpr std::uint64_t LATE_NS = 1'000'000;

// Of the collectives that all ranks called, that no CUDA graph has, and whose ranks' clocks can be
// compared (common_clock.h). Times between hosts are the least that the bounds of clocks allow.
// Calls are what hosts do: a GPU that lags behind its host is not seen.
struct Lateness {
    std::uint64_t compared = 0; // its calls of such operations
    std::uint64_t last = 0;     // it certainly called last
    std::uint64_t late = 0;
    // Of the late ones, after the median rank. 0: none is late.
    std::uint64_t median_late_ns = 0, sum_late_ns = 0;
};

} // namespace collwire::nccl
