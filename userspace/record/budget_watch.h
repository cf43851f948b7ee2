// SPDX-License-Identifier: Apache-2.0
// Keeps --budget: measures what the sources' probes take, and takes the dearest off.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "userspace/calibrate/trap_costs.h"
#include "userspace/loader/run_stats.h"
#include "userspace/record/preamble.h"
#include "userspace/record/probe_budget.h"

namespace collwire::record {

class BudgetWatch {
public:
    // `share` of one CPU for each process. Measures for a fraction of a second what traps cost
    // here. NotPermitted, Unsupported: the kernel counts no run time, or takes no uprobes.
    [[nodiscard]] static Result<std::unique_ptr<BudgetWatch>> start(double share);

    // Probes are attached from now on.
    void begin(std::uint64_t now_ns);
    // When check has to be called, in CLOCK_MONOTONIC ns.
    [[nodiscard]] std::uint64_t due_ns() const { return due_ns_; }
    // Ends a window. Detaches what has to go, and returns the sources that it belongs to.
    std::vector<const source::Source *> check(const Sources &sources, std::uint64_t now_ns);
    // One line: what was taken of the budget, by all probes and by those that were taken off.
    [[nodiscard]] std::string summary() const;

private:
    struct Group {
        source::Source *source = nullptr;
        source::ProbeGroup group;
        double trap_ns = 0; // of this window: a part of what it took
    };

    BudgetWatch(double share, loader::RunStatsSwitch counts, calibrate::TrapCosts traps)
        : budget_(share), counts_(std::move(counts)), traps_(traps) {}
    [[nodiscard]] double trap_ns(const source::ProbeProgram &program) const;
    GroupTime take_time(Group &of);
    void take_off(Group &of, double share, std::uint64_t now_ns);

    ProbeBudget budget_;
    loader::RunStatsSwitch counts_;
    calibrate::TrapCosts traps_;
    std::unordered_map<std::uint32_t, loader::RunStats> seen_; // by program id
    std::uint64_t begin_ns_ = 0, last_ns_ = 0, due_ns_ = 0;
    double everywhere_ns_ = 0;
    double late_ns_ = 0;      // taken in this window by what the last one took off
    double leaving_rate_ = 0; // of traps whose breakpoints the kernel still removes
    std::vector<std::string> taken_off_;
};

} // namespace collwire::record
