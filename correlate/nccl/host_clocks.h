// SPDX-License-Identifier: Apache-2.0
// The solved clocks of hosts as a report shows them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "correlate/model/model.h"

namespace collwire::nccl {

inline constexpr std::uint64_t CLOCK_WINDOW_NS = 10'000'000'000;
inline constexpr std::uint64_t MOST_CLOCK_WINDOWS = 64; // of a host: longer windows beyond

// The middle of a window. All differences are certain bounds.
struct ClockWindow {
    std::uint64_t reference_ns = 0; // monotonic clock of the reference
    clocks::Interval monotonic;     // what the host's monotonic clock showed then
    clocks::Interval ahead;         // its realtime clock less that of the reference
};

struct HostClock {
    Index host = NONE;
    clocks::Calibration calibration = clocks::Calibration::None;
    Index reference = NONE;
    std::uint32_t group = clocks::NO_GROUP;
    std::uint64_t constraints = 0;
    // Half of the bounds' width, over the host's recordings. Absent: not calibrated.
    std::optional<std::uint64_t> typical_error_ns, worst_error_ns; // median, highest
    // Of its monotonic clock against that of the reference, on average over its recordings.
    std::optional<clocks::Interval> drift_ppb;
    std::vector<ClockWindow> windows;
};

[[nodiscard]] std::string_view calibration_name(clocks::Calibration calibration);

// By host, of all hosts whose recordings count.
[[nodiscard]] std::vector<HostClock> host_clocks(const model::Model &model);

} // namespace collwire::nccl
