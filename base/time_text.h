// SPDX-License-Identifier: Apache-2.0
// Points in time on command lines.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace collwire {

// A stretch of CLOCK_REALTIME, in nanoseconds.
struct TimeRange {
    std::uint64_t begin_ns = 0;
    std::uint64_t end_ns = 0;
};

// For a time of day that the range does not contain: which of its days is meant.
enum class DayOf { Begin, End };

// "2026-11-27T14:05:00Z", with fractions of a second, with an offset (+01:00, +0100, +01) or,
// without one, in the local time of this machine (TZ); a space may stand for the T, and seconds may
// be left out. "14:05" and "14:05:30.5" are a time of day, on the last day on which `range`
// contains it. CLOCK_REALTIME in nanoseconds. Usage error for anything else.
[[nodiscard]] Result<std::uint64_t> parse_time_ns(std::string_view text, const TimeRange &range,
                                                  DayOf otherwise);

// "15:05:00.000 CET", in the local time of this machine.
[[nodiscard]] std::string local_time_text(std::uint64_t realtime_ns);

} // namespace collwire
