// SPDX-License-Identifier: Apache-2.0
#include "userspace/sources/gpu_schedule.h"

#include <algorithm>

namespace collwire::sources {

void GpuSchedule::begin(Now now) {
    if (times_.mode == GpuTraceMode::Slices)
        plan_next(now.realtime_ns);
}

void GpuSchedule::plan_next(std::uint64_t realtime_ns) {
    next_realtime_ns_ = (realtime_ns / times_.period_ns + 1) * times_.period_ns;
}

void GpuSchedule::trigger(Now now) {
    if (times_.mode == GpuTraceMode::OnTrigger)
        stop_monotonic_ns_ = now.monotonic_ns + times_.on_ns;
}

bool GpuSchedule::wants_trace(Now now) {
    if (times_.mode == GpuTraceMode::Always)
        return true;
    if (next_realtime_ns_ != 0 && now.realtime_ns >= next_realtime_ns_) {
        const std::uint64_t into_ns = now.realtime_ns - next_realtime_ns_;
        if (into_ns < times_.on_ns)
            stop_monotonic_ns_ = now.monotonic_ns + times_.on_ns - into_ns;
        plan_next(now.realtime_ns);
    } else if (next_realtime_ns_ != 0 && next_realtime_ns_ - now.realtime_ns > times_.period_ns) {
        plan_next(now.realtime_ns); // the clock was set back
    }
    if (now.monotonic_ns >= stop_monotonic_ns_)
        stop_monotonic_ns_ = 0;
    return stop_monotonic_ns_ != 0;
}

std::optional<std::uint64_t> GpuSchedule::until_change_ns(Now now) const {
    std::optional<std::uint64_t> until;
    if (stop_monotonic_ns_ != 0)
        until = stop_monotonic_ns_ - std::min(stop_monotonic_ns_, now.monotonic_ns);
    if (next_realtime_ns_ != 0) {
        const std::uint64_t start_ns =
            next_realtime_ns_ - std::min(next_realtime_ns_, now.realtime_ns);
        until = until ? std::min(*until, start_ns) : start_ns;
    }
    return until;
}

} // namespace collwire::sources
