// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/captured_plans.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "collwire/nccl_launch_records.h"
#include "correlate/nccl/resolve.h"

namespace collwire::nccl {

std::uint32_t CapturedPlans::add(std::uint32_t index) {
    const Launch &launch = stream_.launches[index];
    const auto [found, is_new] = newest_.try_emplace({launch.plan, launch.shape}, plans_.size());
    if (!is_new && is_same_plan(plans_[found->second], launch)) {
        Plan &plan = plans_[found->second];
        plan.launches.push_back(index);
        return plan.launches.front();
    }
    found->second = plans_.size();
    plans_.push_back({{index}, launch.first_task, launch.n_tasks, {}});
    return NONE;
}

// A plan's tasks live as long as the plan.
bool CapturedPlans::is_same_plan(const Plan &plan, const Launch &launch) const {
    const auto first = stream_.tasks.begin() + plan.first_ref;
    return std::equal(first, first + std::min<std::uint32_t>(plan.n_refs, launch.n_tasks),
                      stream_.tasks.begin() + launch.first_task,
                      [](const cw_nccl_task_ref &a, const cw_nccl_task_ref &b) {
                          return a.task == b.task && a.arguments_hash == b.arguments_hash;
                      });
}

void CapturedPlans::set_calls(const std::vector<std::uint32_t> &calls) {
    Calls &into = plans_.back().calls;
    into = calls;
    std::sort(into.begin(), into.end());
    into.erase(std::unique(into.begin(), into.end()), into.end());
}

bool CapturedPlans::play_in_turn(const std::vector<std::uint32_t> &first_launches) const {
    const Plan *before = nullptr, *first = nullptr;
    for (const std::uint32_t launch : first_launches) {
        const auto plan = std::lower_bound(
            plans_.begin(), plans_.end(), launch,
            [](const Plan &of, std::uint32_t wanted) { return of.launches.front() < wanted; });
        if (plan == plans_.end() || plan->launches.front() != launch)
            return false;
        if (before == nullptr) {
            before = first = &*plan;
            continue;
        }
        const Calls &of_this = plan->launches, &of_first = first->launches;
        if (of_this.size() > before->launches.size() || of_this.size() + 1 < of_first.size())
            return false;
        for (std::size_t round = 0; round < of_this.size(); ++round)
            if (of_this[round] < before->launches[round] ||
                (round + 1 < of_first.size() && of_this[round] > of_first[round + 1]))
                return false;
        before = &*plan;
    }
    return true;
}

void CapturedPlans::finish(LikenessOfCall likeness, const UncapturedCalls &uncaptured) {
    if (plans_.empty())
        return;
    find_unlaunched(likeness, uncaptured);
    for (const Plan &plan : plans_)
        split(plan, likeness);
}

// Empty: the call of some part is unknown.
CapturedPlans::Calls CapturedPlans::calls_of(const Plan &plan) const {
    if (!plan.calls.empty())
        return plan.calls;
    const Launch &launch = stream_.launches[plan.launches.front()];
    const auto first = task_calls_.begin() + launch.first_task;
    Calls calls(first, first + launch.n_tasks);
    std::sort(calls.begin(), calls.end());
    calls.erase(std::unique(calls.begin(), calls.end()), calls.end());
    if (!calls.empty() && calls.back() == NONE)
        calls.clear();
    return calls;
}

void CapturedPlans::find_unlaunched(LikenessOfCall likeness, const UncapturedCalls &uncaptured) {
    for (const Plan &plan : plans_)
        for (const std::uint32_t call : calls_of(plan))
            unlaunched_[likeness(stream_.calls[call])];
    for (std::uint32_t i = 0; i < instance_.n_calls; ++i) {
        const std::uint32_t call = instance_.first_call + i;
        if (joins_.launch(call) != NONE || never_launches(stream_.calls[call], instance_) ||
            uncaptured.contains(instance_.stream, call))
            continue;
        if (const auto found = unlaunched_.find(likeness(stream_.calls[call]));
            found != unlaunched_.end())
            found->second.insert(found->second.end(), call);
    }
}

void CapturedPlans::split(const Plan &plan, LikenessOfCall likeness) {
    const Calls first_calls = calls_of(plan);
    const auto time_of = [&](Replays at) { return stream_.launches[*at].time_ns; };
    Calls calls = first_calls;
    Replays begin = plan.launches.begin();
    const auto close = [&](Replays end) {
        if (begin != plan.launches.begin())
            give_calls(begin, end, first_calls, calls);
        number(begin, end, plan.calls.empty() ? Calls{} : calls);
        begin = end;
    };
    for (Replays at = begin; !calls.empty();) {
        // Continues to the first launch after a call that could be another capture.
        const std::set<std::uint32_t> &like = unlaunched_[likeness(stream_.calls[calls.front()])];
        const auto next = like.lower_bound(first_call_after(time_of(at)));
        if (next == like.end())
            break;
        at = std::lower_bound(at + 1, plan.launches.end(), stream_.calls[*next].time_ns,
                              [&](std::uint32_t launch, std::uint64_t time_ns) {
                                  return stream_.launches[launch].time_ns < time_ns;
                              });
        if (at == plan.launches.end())
            break;
        if (auto found = recaptured(first_calls, time_of(at - 1), time_of(at), likeness)) {
            close(at);
            calls = std::move(*found);
        }
    }
    close(plan.launches.end());
}

// For each of these calls, in order, an equal waiting one.
std::optional<CapturedPlans::Calls> CapturedPlans::recaptured(const Calls &calls,
                                                              std::uint64_t after_ns,
                                                              std::uint64_t until_ns,
                                                              LikenessOfCall likeness) {
    const std::uint32_t first = first_call_after(after_ns), end = first_call_after(until_ns);
    std::unordered_map<std::uint64_t, std::uint32_t> next; // by likeness
    Calls found;
    for (const std::uint32_t call : calls) {
        const std::uint64_t like = likeness(stream_.calls[call]);
        const auto waiting = unlaunched_.find(like);
        if (waiting == unlaunched_.end())
            return std::nullopt;
        std::uint32_t &from = next.try_emplace(like, first).first->second;
        const auto at = waiting->second.lower_bound(from);
        if (at == waiting->second.end() || *at >= end)
            return std::nullopt;
        found.push_back(*at);
        from = *at + 1;
    }
    for (const std::uint32_t call : found)
        unlaunched_[likeness(stream_.calls[call])].erase(call);
    return found;
}

// All launches of a plan share the calls of `from`.
void CapturedPlans::give_calls(Replays begin, Replays end, const Calls &from, const Calls &to) {
    const std::uint32_t old_task = stream_.launches[*begin].first_task;
    const auto first_task = static_cast<std::uint32_t>(task_calls_.size());
    std::uint32_t n_tasks = 0;
    for (Replays at = begin; at != end; ++at) {
        Launch launch = stream_.launches[*at];
        n_tasks = std::max<std::uint32_t>(n_tasks, launch.n_tasks);
        launch.first_task = first_task;
        stream_.launches.set(*at, launch);
    }
    for (std::uint32_t i = 0; i < n_tasks; ++i) {
        const std::uint32_t call = task_calls_[old_task + i];
        const auto old = std::lower_bound(from.begin(), from.end(), call);
        task_calls_.push_back(old == from.end() || *old != call
                                  ? NONE
                                  : to[static_cast<std::size_t>(old - from.begin())]);
    }
    for (const std::uint32_t call : to)
        join_call(joins_, call, *begin, std::min(Rung::Inferred, best_));
}

// Of equal launches the last one informs all calls of their number. One with lost tasks informs
// only the calls it has.
void CapturedPlans::number(Replays begin, Replays end, const Calls &without_task) {
    for (Replays at = begin; at != end; ++at) {
        Launch launch = stream_.launches[*at];
        launch.replay = static_cast<std::uint32_t>(at - begin);
        stream_.launches.set(*at, launch);
    }
    for (const std::uint32_t call : without_task)
        join_call(joins_, call, *begin, Rung::Exact, static_cast<std::uint32_t>(end - begin));
    std::uint32_t joined = 0;
    for (Replays at = end; at != begin;) {
        const Launch &launch = stream_.launches[*--at];
        for (; joined < launch.n_tasks; ++joined)
            if (const std::uint32_t call = task_calls_[launch.first_task + joined]; call != NONE)
                join_call(joins_, call, *begin, Rung::Exact, launch.replay + 1);
    }
}

std::uint32_t CapturedPlans::first_call_after(std::uint64_t time_ns) const {
    const auto begin = stream_.calls.begin() + instance_.first_call;
    return static_cast<std::uint32_t>(
        std::upper_bound(begin, begin + instance_.n_calls, time_ns,
                         [](std::uint64_t time, const Call &call) { return time < call.time_ns; }) -
        stream_.calls.begin());
}

} // namespace collwire::nccl
