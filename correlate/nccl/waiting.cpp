// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/waiting.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <tuple>
#include <utility>

#include "correlate/nccl/describe.h"
#include "correlate/nccl/last_calls.h"

namespace collwire::nccl {
namespace {

struct Bounds {
    std::uint64_t least_ns = 0, most_ns = 0;
};

using Key = std::tuple<model::Index, std::uint8_t, model::Known, std::uint8_t, std::uint8_t>;

struct Group {
    WaitingTimes times;
    std::vector<Bounds> spreads, transfers;
};

// Nearest rank: the lower bounds and the upper bounds, each in order, bound the percentile.
BoundedPercentiles percentiles_of(std::vector<Bounds> &times) {
    BoundedPercentiles all{.n = times.size()};
    if (times.empty())
        return all;
    const std::size_t p50 = (times.size() - 1) / 2;
    const std::size_t p95 = (times.size() * 95 + 99) / 100 - 1;
    std::ranges::sort(times, {}, &Bounds::least_ns);
    all.least_p50_ns = times[p50].least_ns;
    all.least_p95_ns = times[p95].least_ns;
    std::ranges::sort(times, {}, &Bounds::most_ns);
    all.most_p50_ns = times[p50].most_ns;
    all.most_p95_ns = times[p95].most_ns;
    return all;
}

// `time`: from the first call to the end.
Waited waited(const CallSpread &spread, const Bounds &time) {
    if (spread.least_ns >= time.most_ns - std::min(spread.least_ns, time.most_ns))
        return Waited::ForRank;
    if (spread.most_ns < time.least_ns && time.least_ns - spread.most_ns > spread.most_ns)
        return Waited::ForTheRest;
    return Waited::Unclear;
}

void add(const Operation &operation, std::size_t place, const LastCalls &calls, Group &group,
         const CallSpread &spread) {
    group.spreads.push_back({spread.least_ns, spread.most_ns});
    if (operation.end_known == EndKnown::No) {
        ++group.times.unclear;
        return;
    }
    const Bounds time{operation.least_duration_ns, operation.most_duration_ns};
    group.transfers.push_back({model::subtract_or_zero(time.least_ns, spread.most_ns),
                               model::subtract_or_zero(time.most_ns, spread.least_ns)});
    switch (waited(spread, time)) {
    case Waited::ForRank:
        ++group.times.for_rank;
        group.times.sum_waited_ns =
            model::add_saturating(group.times.sum_waited_ns, spread.least_ns);
        if (const auto last = calls.of(operation, place, false))
            ++group.times.last_ranks[last->rank];
        break;
    case Waited::ForTheRest:
        ++group.times.for_the_rest;
        break;
    case Waited::Unclear:
        ++group.times.unclear;
        break;
    }
}

} // namespace

std::vector<WaitingTimes> find_waiting(const model::Model &model) {
    return find_waiting(model, LastCalls(model));
}

std::vector<WaitingTimes> find_waiting(const model::Model &model, const LastCalls &calls) {
    std::map<Key, Group> groups;
    const auto &all = model.nccl.collectives;
    for (std::size_t place = 0; place < all.size(); ++place) {
        const Operation &operation = all[place];
        const auto spread = calls.spread(operation, place, false);
        if (!spread)
            continue;
        const Key key{operation.comm, operation.func, size_bytes(operation), operation.algorithm,
                      operation.protocol};
        add(operation, place, calls, groups[key], *spread);
    }
    std::vector<WaitingTimes> found;
    for (auto &[key, group] : groups) {
        WaitingTimes &times = found.emplace_back(std::move(group.times));
        std::tie(times.comm, times.func, times.size_bytes, times.algorithm, times.protocol) = key;
        times.spread = percentiles_of(group.spreads);
        times.transfer = percentiles_of(group.transfers);
    }
    std::ranges::stable_sort(found, std::ranges::greater{}, &WaitingTimes::sum_waited_ns);
    return found;
}

} // namespace collwire::nccl
