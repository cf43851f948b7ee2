// SPDX-License-Identifier: Apache-2.0
// When the guest libraries of CUDA processes trace: always, in slices, or for one slice at a time.
#pragma once

#include <cstdint>
#include <optional>

namespace collwire::sources {

enum class GpuTraceMode {
    Always,
    Slices,    // each starts at a multiple of the period of CLOCK_REALTIME, on all nodes at once
    OnTrigger, // one slice for each trigger
};

struct GpuTraceTimes {
    GpuTraceMode mode = GpuTraceMode::Always;
    std::uint64_t on_ns = 2'000'000'000;
    std::uint64_t period_ns = 60'000'000'000;
};

class GpuSchedule {
public:
    struct Now {
        std::uint64_t realtime_ns = 0;
        std::uint64_t monotonic_ns = 0;
    };

    explicit GpuSchedule(GpuTraceTimes times) : times_(times) {}

    // The recording starts. Slices are whole: the first one is the next that starts.
    void begin(Now now);
    // A slice from now on, or a longer one if one has begun. For OnTrigger only.
    void trigger(Now now);
    // Whether the trace should be on. Call it when until_change_ns has passed, or more often.
    [[nodiscard]] bool wants_trace(Now now);
    // Time until wants_trace may change; nothing: only a trigger changes it.
    [[nodiscard]] std::optional<std::uint64_t> until_change_ns(Now now) const;

private:
    void plan_next(std::uint64_t realtime_ns);

    GpuTraceTimes times_;
    std::uint64_t next_realtime_ns_ = 0;  // the next slice starts; 0: none is planned
    std::uint64_t stop_monotonic_ns_ = 0; // the slice ends; 0: there is none
};

} // namespace collwire::sources
