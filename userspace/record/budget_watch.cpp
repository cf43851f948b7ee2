// SPDX-License-Identifier: Apache-2.0
#include "userspace/record/budget_watch.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "userspace/loader/take_off.h"

namespace collwire::record {
namespace {

constexpr std::uint64_t SHORT_WINDOW_NS = 100'000'000;
constexpr std::uint64_t LONG_WINDOW_NS = 1'000'000'000;
constexpr std::uint64_t LEAST_WINDOW_NS = 1'000'000;
constexpr std::uint64_t CALIBRATION_NS = 50'000'000;
constexpr double NS_PER_S = 1e9;

std::string percent(double share) {
    return fmt::format("{:.3g}%", share * 100);
}

} // namespace

Result<std::unique_ptr<BudgetWatch>> BudgetWatch::start(double share) {
    auto counts = loader::RunStatsSwitch::turn_on();
    if (!counts)
        return std::move(counts).failure().in("--budget");
    auto traps = calibrate::measure_traps(CALIBRATION_NS);
    if (!traps)
        return std::move(traps).failure().in("--budget");
    return std::unique_ptr<BudgetWatch>(new BudgetWatch(share, std::move(*counts), *traps));
}

void BudgetWatch::begin(std::uint64_t now_ns) {
    begin_ns_ = last_ns_ = now_ns;
    due_ns_ = now_ns + SHORT_WINDOW_NS;
}

double BudgetWatch::trap_ns(const source::ProbeProgram &program) const {
    switch (program.kind) {
    case CW_PROBE_UPROBE:
        return program.emulated ? traps_.emulated_ns : traps_.single_stepped_ns;
    case CW_PROBE_URETPROBE:
        return traps_.return_ns;
    default:
        return program.stated_ns;
    }
}

// Of the group's programs since they were last read. They are loaded after the count was turned on.
GroupTime BudgetWatch::take_time(Group &of) {
    GroupTime time{of.group.use, 0};
    of.trap_ns = 0;
    for (const source::ProbeProgram &program : of.group.programs) {
        const auto now = loader::run_stats_of(program.fd);
        if (!now)
            continue;
        loader::RunStats &before = seen_[now->program_id];
        of.trap_ns += static_cast<double>(now->runs - before.runs) * trap_ns(program);
        time.taken_ns += static_cast<double>(now->run_time_ns - before.run_time_ns);
        before = *now;
    }
    time.taken_ns += of.trap_ns;
    return time;
}

void BudgetWatch::take_off(Group &of, double share, std::uint64_t now_ns) {
    const double after_s = static_cast<double>(now_ns - begin_ns_) / NS_PER_S;
    of.source->take_off(
        of.group.name,
        fmt::format(
            "--budget {}: probes ({}) were taken off {:.1f} s after the start. They took {} "
            "of one CPU per process. What they record ends there. Fix: a larger --budget",
            percent(budget_.share()), of.group.name, after_s, percent(share)));
    taken_off_.push_back(fmt::format("{} {} after {:.1f} s ({})", of.source->name(), of.group.name,
                                     after_s, percent(share)));
}

std::vector<const source::Source *> BudgetWatch::check(const Sources &sources,
                                                       std::uint64_t now_ns) {
    if (now_ns < last_ns_ + LEAST_WINDOW_NS)
        return {};
    const auto window_ns = static_cast<double>(now_ns - std::exchange(last_ns_, now_ns));
    std::vector<Group> groups;
    std::vector<GroupTime> times;
    std::set<std::uint32_t> processes;
    for (const auto &source : sources) {
        processes.merge(source->recorded_processes());
        for (source::ProbeGroup &group : source->probe_groups()) {
            groups.push_back({source.get(), std::move(group)});
            times.push_back(take_time(groups.back()));
            if (times.back().use == source::ProbeUse::Everywhere)
                everywhere_ns_ += times.back().taken_ns;
        }
    }
    const bool are_leaving = leaving_rate_ > 0 && loader::is_taking_off();
    times.push_back({source::ProbeUse::Kept,
                     std::exchange(late_ns_, 0) + (are_leaving ? leaving_rate_ * window_ns : 0)});
    if (!are_leaving)
        leaving_rate_ = 0;

    std::vector<const source::Source *> changed;
    const double process_ns =
        window_ns * static_cast<double>(std::max<std::size_t>(processes.size(), 1));
    for (const std::size_t i : budget_.add_window(window_ns, processes.size(), times)) {
        const double trap_rate = groups[i].trap_ns / window_ns;
        take_off(groups[i], times[i].taken_ns / process_ns, now_ns);
        late_ns_ += take_time(groups[i]).taken_ns;
        leaving_rate_ += trap_rate;
        changed.push_back(groups[i].source);
    }
    due_ns_ = now_ns + (budget_.is_tight() ? SHORT_WINDOW_NS : LONG_WINDOW_NS);
    return changed;
}

std::string BudgetWatch::summary() const {
    std::string off;
    for (const std::string &one : taken_off_)
        off += (off.empty() ? "" : ", ") + one;
    const double all_ns = static_cast<double>(last_ns_ - begin_ns_);
    return fmt::format(
        "budget {}: probes took {} of one CPU per process, {:.1f} ms in {:.1f} s. "
        "Taken off: {}. Probes that any process runs, not in the budget: {} of one CPU",
        percent(budget_.share()), percent(budget_.taken_share()), budget_.taken_ns() / 1e6,
        all_ns / NS_PER_S, off.empty() ? "nothing" : off,
        percent(all_ns > 0 ? everywhere_ns_ / all_ns : 0));
}

} // namespace collwire::record
