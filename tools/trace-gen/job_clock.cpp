// SPDX-License-Identifier: Apache-2.0
#include "tools/trace-gen/job_clock.h"

#include <random>

namespace collwire::trace_gen {

std::uint64_t JobClock::realtime_ns(std::uint64_t true_ns) const {
    std::int64_t ahead_ns = offset_ns + drift_ns(true_ns);
    for (const SetClock &step : steps)
        ahead_ns += step.from_ns <= true_ns ? step.ahead_ns : 0;
    return JOB_START_REALTIME_NS + true_ns + static_cast<std::uint64_t>(ahead_ns);
}

JobClock clock_of_node(const JobOptions &options, std::uint32_t node) {
    std::mt19937_64 random(options.seed * 7919 + node);
    const auto share = [&] { // -1 to 1
        return static_cast<double>(random() % 2'000'001) / 1e6 - 1;
    };
    JobClock clock;
    clock.boot_ns = (3600 + random() % 1'000'000) * 1'000'000'000;
    const double offset = share();
    const double drift = share();
    if (options.skew == JobSkew::Constant)
        clock.offset_ns = static_cast<std::int64_t>(offset * static_cast<double>(options.skew_ns));
    if (options.skew == JobSkew::Drift)
        clock.drift_ppb = static_cast<std::int64_t>(drift * options.drift_ppm * 1000);
    for (const SetClock &set : options.clocks) {
        if (set.node != node)
            continue;
        if (set.from_ns == 0)
            clock.offset_ns += set.ahead_ns;
        else
            clock.steps.push_back(set);
    }
    return clock;
}

} // namespace collwire::trace_gen
