// SPDX-License-Identifier: Apache-2.0
// The machine's clocks.
#pragma once

#include <cstdint>
#include <ctime>

namespace collwire {

inline std::uint64_t clock_ns(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
           static_cast<std::uint64_t>(now.tv_nsec);
}

// CLOCK_MONOTONIC, the time of every record.
inline std::uint64_t monotonic_ns() {
    return clock_ns(CLOCK_MONOTONIC);
}

} // namespace collwire
