// SPDX-License-Identifier: Apache-2.0
#include "tests/cupti_double/time_source.h"

#include "tests/cupti_double/settings.h"

namespace collwire::cupti_double {

std::uint64_t read_clock(ReadTimestamp read) {
    return read != nullptr ? read() : realtime_ns();
}

ClockOffset measure_offset(ReadTimestamp read) {
    constexpr int READINGS = 8;
    ClockOffset best;
    std::uint64_t shortest_ns = UINT64_MAX;
    for (int i = 0; i < READINGS; i++) {
        const std::uint64_t before_ns = monotonic_ns();
        const std::uint64_t value_ns = read_clock(read);
        const std::uint64_t took_ns = monotonic_ns() - before_ns;
        if (took_ns >= shortest_ns)
            continue;
        shortest_ns = took_ns;
        best.offset_ns = static_cast<std::int64_t>(value_ns - before_ns - took_ns / 2);
        best.error_ns = took_ns / 2 + 1;
        best.at_ns = before_ns + took_ns / 2;
    }
    return best;
}

} // namespace collwire::cupti_double
