// SPDX-License-Identifier: Apache-2.0
// The clocks of a generated node against true time.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/trace-gen/job_options.h"

namespace collwire::trace_gen {

struct JobClock {
    std::int64_t offset_ns = 0;  // CLOCK_REALTIME at the start of the recordings, less true time
    std::int64_t drift_ppb = 0;  // of both clocks
    std::uint64_t boot_ns = 0;   // CLOCK_MONOTONIC at the start of the recordings
    std::vector<SetClock> steps; // of CLOCK_REALTIME, after the start

    [[nodiscard]] std::int64_t drift_ns(std::uint64_t true_ns) const {
        return static_cast<std::int64_t>(true_ns / 1'000) * drift_ppb / 1'000'000;
    }
    [[nodiscard]] std::uint64_t monotonic_ns(std::uint64_t true_ns) const {
        return boot_ns + true_ns + static_cast<std::uint64_t>(drift_ns(true_ns));
    }
    [[nodiscard]] std::uint64_t realtime_ns(std::uint64_t true_ns) const;
};

inline constexpr std::uint64_t JOB_START_REALTIME_NS = 1'767'225'600'000'000'000; // 2026-01-01 UTC

[[nodiscard]] JobClock clock_of_node(const JobOptions &options, std::uint32_t node);

} // namespace collwire::trace_gen
