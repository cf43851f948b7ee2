// SPDX-License-Identifier: Apache-2.0
// Which probes --budget takes off, and when: arithmetic over the measured time of each window.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "userspace/source/source.h"

namespace collwire::record {

// What the probes of a group took in a window.
struct GroupTime {
    source::ProbeUse use = source::ProbeUse::Operations;
    double taken_ns = 0;
};

// What the probes of a window may have taken, and what is left of earlier ones.
struct Allowance {
    double window_ns = 0;  // budget x window x processes
    double credit_ns = 0;  // with this window. Below 0: more was taken than allowed
    double granted_ns = 0; // of all windows so far
};

// The groups to take off so that a next window like this one is allowed, in this order: the dearest
// of those that run for operations, and only then the dearest of the control path. Groups that took
// nothing, or that are kept, are never taken. Indices into `window`.
[[nodiscard]] std::vector<std::size_t> groups_to_take_off(std::span<const GroupTime> window,
                                                          const Allowance &allowance);

// The account of a recording. A process's time that was not taken is kept for later windows, for a
// minute; the first second is granted in advance.
class ProbeBudget {
public:
    // `share` of one CPU, for each process.
    explicit ProbeBudget(double share) : share_(share) {}

    // The next window; returns what to take off after it. 0 processes count as one.
    std::vector<std::size_t> add_window(double window_ns, std::size_t n_processes,
                                        std::span<const GroupTime> window);

    [[nodiscard]] double share() const { return share_; }
    // Of one CPU, for each process, in all windows.
    [[nodiscard]] double taken_share() const;
    [[nodiscard]] double taken_ns() const { return taken_ns_; }
    // Less than half of what can be kept is left: the next window has to be a short one.
    [[nodiscard]] bool is_tight() const { return is_tight_; }

private:
    double share_;
    bool has_begun_ = false;
    bool is_tight_ = true;
    double credit_ns_ = 0, granted_ns_ = 0, taken_ns_ = 0, processes_ns_ = 0;
};

} // namespace collwire::record
