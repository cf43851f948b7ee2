// SPDX-License-Identifier: Apache-2.0
// All parts of a comparison in order, and its verdict.
#include <algorithm>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "correlate/against/comparison.h"
#include "correlate/against/parts.h"
#include "correlate/report/units.h"

namespace collwire::against {
namespace {

RunSummary summary_of(const RunRows &run) {
    RunSummary summary;
    for (const rows::HostRow &row : run.of<rows::HostRow>()) {
        summary.hosts.push_back(row.host);
        if (row.begin_realtime_ns)
            summary.begin_ns =
                std::min(summary.begin_ns.value_or(UINT64_MAX), *row.begin_realtime_ns);
        if (row.end_realtime_ns)
            summary.end_ns = std::max(summary.end_ns.value_or(0), *row.end_realtime_ns);
    }
    for (const rows::CommunicatorRow &row : run.of<rows::CommunicatorRow>())
        if (const auto n_ranks = static_cast<std::uint64_t>(std::max<std::int64_t>(row.n_ranks, 0));
            n_ranks > summary.n_ranks) {
            summary.n_ranks = n_ranks;
            summary.ranks_captured = row.ranks_captured;
        }
    summary.communicators = run.of<rows::CommunicatorRow>().size();
    summary.operations = run.operations().size();
    for (const rows::LossRow &row : run.of<rows::LossRow>())
        summary.lost_records += row.records;
    std::set<std::string> versions;
    for (const rows::RankRow &row : run.of<rows::RankRow>())
        if (row.nccl_version)
            versions.insert(*row.nccl_version);
    summary.nccl_versions.assign(versions.begin(), versions.end());
    return summary;
}

double most_time(const OperationGroup &group) {
    const TimeComparison &time = group.of(Metric::Time);
    return std::max(time.usual_a * static_cast<double>(group.a.count),
                    time.usual_b * static_cast<double>(group.b.count));
}

void sort_groups(Comparison &result) {
    std::ranges::stable_sort(result.groups, [](const OperationGroup &a, const OperationGroup &b) {
        const auto key = [](const OperationGroup &group) {
            return std::tuple(most_time(group), group.size_bytes.value_or(0));
        };
        return key(a) > key(b);
    });
}

// Of a longer or shorter time the one that says most of the job: its interval, else the first.
const Difference *effect_of(const Comparison &result, bool is_longer) {
    const Difference *effect = nullptr;
    for (const Difference &one : result.differences) {
        if (one.topic != Topic::Times)
            continue;
        const auto least = one.ratio_least.value_or(is_longer ? 2 : 0);
        if ((least > 1) != is_longer)
            continue;
        if (effect == nullptr || one.code == "interval")
            effect = &one;
    }
    return effect;
}

void set_verdict(Comparison &result) {
    const auto both = [&](std::string_view name, const Difference &effect) {
        const Difference &first = result.differences.front();
        result.sentence = fmt::format("{}: {}", name, effect.sentence);
        if (&first != &effect)
            result.sentence += fmt::format("; the first difference: {}", first.sentence);
    };
    if (result.matches.pairs.empty()) {
        result.verdict = VerdictCode::NotComparable;
        result.sentence = "not comparable: no communicator of A is like one of B";
        return;
    }
    if (const Difference *effect = effect_of(result, true)) {
        result.verdict = VerdictCode::Slower;
        return both("slower", *effect);
    }
    if (const Difference *effect = effect_of(result, false)) {
        result.verdict = VerdictCode::Faster;
        return both("faster", *effect);
    }
    if (!result.differences.empty()) {
        result.verdict = VerdictCode::Different;
        result.sentence = fmt::format("nothing is slower by more than the spread; the first "
                                      "difference: {}",
                                      result.differences.front().sentence);
        return;
    }
    const bool has_times = std::ranges::any_of(result.groups, [](const OperationGroup &group) {
        return std::ranges::any_of(group.metrics, [](const TimeComparison &of) {
            return of.state == CompareState::Alike;
        });
    });
    result.verdict = VerdictCode::Alike;
    result.sentence = has_times ? "no difference larger than the spread"
                                : "no difference, but no times could be compared";
}

} // namespace

Comparison compare_runs(const RunRows &a, const RunRows &b) {
    Comparison result;
    const TwoRuns runs{.a = a, .b = b};
    result.a = summary_of(a);
    result.b = summary_of(b);
    result.matches = match_communicators(a, b);
    if (!result.matches.pairs.empty()) {
        compare_ranks(runs, result);
        group_operations(runs, result);
        sort_groups(result);
        compare_settings(runs, result);
        compare_paths(runs, result);
        compare_devices(runs, result);
        compare_work(runs, result);
        compare_times(runs, result);
        compare_recordings(runs, result);
    }
    set_verdict(result);
    return result;
}

} // namespace collwire::against
