// SPDX-License-Identifier: Apache-2.0
#include "correlate/gpu/join_plans.h"

#include <algorithm>
#include <map>
#include <set>

#include "collwire/nccl_launch_records.h"

namespace collwire::gpu {

namespace {

// One function of NCCL reports a plan to the profiler and then posts its operations. A thread may
// lose its processor in between.
constexpr std::uint64_t POST_NS = 50'000'000;
// An operation that was issued before the mask changed is launched after it.
constexpr std::uint64_t ARMING_NS = 200'000;

bool agrees(const PlanFact &plan, const LaunchFact &launch) {
    const bool is_grid = launch.channels == 0 || plan.channels == launch.channels;
    const bool is_func = launch.func == CW_NCCL_FUNC_UNKNOWN || plan.func == CW_NCCL_FUNC_UNKNOWN ||
                         launch.func == plan.func;
    return is_grid && is_func;
}

bool is_traced(const LaunchFact &launch, std::span<const TracedSpan> spans) {
    return std::ranges::any_of(spans, [&](const TracedSpan &span) {
        return launch.time_ns >= span.armed_ns + ARMING_NS &&
               launch.time_ns < span.disarming_begin_ns;
    });
}

} // namespace

std::vector<PlanFact> plans_of(std::span<const ChannelFact> channels) {
    struct Gathered {
        PlanFact plan;
        std::set<std::uint16_t> channels;
        bool is_running = false;
    };
    std::map<std::uint64_t, Gathered> by_number;
    for (const ChannelFact &channel : channels) {
        if (channel.plan == 0)
            continue;
        const auto [place, is_new] = by_number.try_emplace(channel.plan);
        Gathered &gathered = place->second;
        PlanFact &plan = gathered.plan;
        if (is_new)
            plan = {channel.posted_ns, channel.start_ns, channel.end_ns, 0, channel.func};
        plan.start_ns = std::min(plan.start_ns, channel.start_ns);
        plan.end_ns = std::max(plan.end_ns, channel.end_ns);
        if (plan.func != channel.func)
            plan.func = CW_NCCL_FUNC_UNKNOWN;
        gathered.channels.insert(channel.channel);
        gathered.is_running = gathered.is_running || channel.end_ns == 0;
    }
    std::vector<PlanFact> plans;
    plans.reserve(by_number.size());
    for (auto &[number, gathered] : by_number) {
        gathered.plan.channels = static_cast<std::uint32_t>(gathered.channels.size());
        if (gathered.is_running)
            gathered.plan.end_ns = 0;
        plans.push_back(gathered.plan);
    }
    std::ranges::stable_sort(plans, {}, &PlanFact::posted_ns);
    return plans;
}

KernelJoin join_plans(std::span<const LaunchFact> launches, std::span<const PlanFact> plans,
                      std::span<const TracedSpan> spans) {
    KernelJoin join;
    join.kernels.resize(plans.size());
    std::vector<bool> has_kernel(launches.size());
    std::size_t next = 0;
    for (std::size_t i = 0; i < plans.size(); ++i) {
        const PlanFact &plan = plans[i];
        while (next < launches.size() && launches[next].time_ns < plan.posted_ns)
            ++next;
        // Its own launch is the first one after it, and before the next plan.
        const std::uint64_t end_ns = std::min(
            plan.posted_ns + POST_NS, i + 1 < plans.size() ? plans[i + 1].posted_ns : UINT64_MAX);
        if (next == launches.size() || launches[next].time_ns >= end_ns) {
            ++join.without_launch;
            continue;
        }
        if (!agrees(plan, launches[next])) {
            ++join.contradicted;
            continue;
        }
        join.kernels[i] = {static_cast<std::uint32_t>(next), Match::Exact};
        has_kernel[next] = true;
        ++join.exact;
    }
    for (std::size_t i = 0; i < launches.size(); ++i) {
        const bool is_counted = has_kernel[i] || is_traced(launches[i], spans);
        join.traced_launches += is_counted;
        join.without_kernel += is_counted && !has_kernel[i];
    }
    return join;
}

} // namespace collwire::gpu
