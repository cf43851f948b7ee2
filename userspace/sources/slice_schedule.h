// SPDX-License-Identifier: Apache-2.0
// When posts are counted that need not be counted all the time: in slices.
#pragma once

#include <cstdint>

namespace collwire::sources {

struct SliceTimes {
    std::uint64_t on_ns = 0; // of a slice; 0: always
    std::uint64_t period_ns = 0;
};

enum class PostsCounted { All, Slice, Paused };

// Times are CLOCK_MONOTONIC.
class SliceSchedule {
public:
    explicit SliceSchedule(SliceTimes times) : times_(times) {}

    // What is to be counted from `now_ns` on. The first slice starts when a pause is first allowed;
    // without leave to pause everything is counted.
    PostsCounted at(std::uint64_t now_ns, bool may_pause);
    // The probes of a slice are in place: it lasts from now on.
    void placed(std::uint64_t now_ns);
    // When it has to be asked again; 0: no time.
    [[nodiscard]] std::uint64_t due_ns() const { return due_ns_; }

private:
    SliceTimes times_;
    PostsCounted counted_ = PostsCounted::All;
    std::uint64_t slice_ns_ = 0; // when the last slice started, or had to
    std::uint64_t due_ns_ = 0;
};

} // namespace collwire::sources
