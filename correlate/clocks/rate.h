// SPDX-License-Identifier: Apache-2.0
// How fast two clocks may drift apart: the one assumption behind every bound of this room.
#pragma once

#include <cstdint>

namespace collwire::clocks {

// CLOCK_MONOTONIC of any two nodes. The kernel lets NTP change its rate by 500 ppm at most.
inline constexpr std::int64_t MOST_DRIFT_PPM = 500;
// Rates that differ by 500 ppm seen from the one node do so by 500.25 seen from the other.
inline constexpr std::int64_t COUNTED_DRIFT_PPM = MOST_DRIFT_PPM + 1;

// How far two clocks can drift apart in that time, rounded up.
[[nodiscard]] inline std::int64_t most_drift_ns(std::int64_t elapsed_ns) {
    constexpr std::int64_t MILLION = 1'000'000;
    const std::int64_t length_ns = elapsed_ns < 0 ? -elapsed_ns : elapsed_ns;
    return length_ns / MILLION * COUNTED_DRIFT_PPM +
           (length_ns % MILLION * COUNTED_DRIFT_PPM + MILLION - 1) / MILLION;
}

} // namespace collwire::clocks
