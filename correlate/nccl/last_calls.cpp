// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/last_calls.h"

#include <algorithm>

#include "correlate/nccl/common_clock.h"
#include "correlate/nccl/resolve.h"

namespace collwire::nccl {

LastCalls::LastCalls(const model::Model &model) : model_(model), nccl_(model.nccl) {
    const CommonClock clock(model);
    calls_[0].resize(nccl_.collectives.size());
    calls_[1].resize(nccl_.p2p.size());
    for_each_call([&](Calls &of, const Instance &instance, std::uint64_t monotonic_ns) {
        const CommonTime time = clock.time(instance.host, monotonic_ns);
        const std::uint64_t time_ns = time.time_ns;
        if (of.first_host == model::NONE)
            of.first_host = instance.host;
        of.has_several_hosts = of.has_several_hosts || instance.host != of.first_host;
        of.lacks_bounds =
            of.lacks_bounds || !time.error_ns() ||
            model.clocks.nodes[instance.host].group != model.clocks.nodes[of.first_host].group;
        of.earliest_ns = std::min(of.earliest_ns, time.earliest_ns);
        of.latest_ns = std::max(of.latest_ns, time.latest_ns);
        of.first_by_ns = std::min(of.first_by_ns, time.latest_ns);
        of.last_from_ns = std::max(of.last_from_ns, time.earliest_ns);
        of.least_monotonic_ns = std::min(of.least_monotonic_ns, monotonic_ns);
        of.most_monotonic_ns = std::max(of.most_monotonic_ns, monotonic_ns);
        of.first_ns = std::min(of.first_ns, time_ns); // 0: a clock was never read
        if (time_ns > of.last_ns) {
            of.last_ns = time_ns;
            of.last_rank = instance.record.rank;
            of.last_host = instance.host;
            of.last_monotonic_ns = monotonic_ns;
            of.last_earliest_ns = time.earliest_ns;
        }
        ++of.n;
    });
    for_each_call([&](Calls &of, const Instance &instance, std::uint64_t monotonic_ns) {
        if (of.last_host != model::NONE && is_earlier(clock, of, instance.host, monotonic_ns))
            ++of.n_earlier;
    });
}

// As CommonClock::order, which would place the last call again for each of the others.
bool LastCalls::is_earlier(const CommonClock &clock, const Calls &calls, model::Index host,
                           std::uint64_t monotonic_ns) const {
    if (host == calls.last_host)
        return monotonic_ns < calls.last_monotonic_ns;
    const CommonTime time = clock.time(host, monotonic_ns);
    if (!time.error_ns() || calls.last_earliest_ns == 0)
        return clock.order(host, monotonic_ns, calls.last_host, calls.last_monotonic_ns) ==
               clocks::Order::Earlier;
    return model_.clocks.nodes[host].group == model_.clocks.nodes[calls.last_host].group &&
           time.latest_ns < calls.last_earliest_ns;
}

template <typename Visit> void LastCalls::for_each_call(Visit visit) {
    for (const Instance &instance : nccl_.instances) {
        const auto &calls = nccl_.gathered.streams[instance.stream].calls;
        const auto &joins = nccl_.call_joins[instance.stream];
        for (std::uint32_t i = 0; i < instance.n_calls; ++i) {
            const std::uint32_t call = instance.first_call + i;
            const model::Index operation = joins.operation(call);
            std::vector<Calls> &all = calls_[is_p2p(calls[call].func) ? 1 : 0];
            if (operation < all.size()) // NONE is not
                visit(all[operation], instance, calls[call].time_ns);
        }
    }
}

const LastCalls::Calls *LastCalls::whole(const Operation &operation, std::size_t place,
                                         bool is_pair) const {
    const Calls &calls = calls_[is_pair ? 1 : 0][place];
    const std::int64_t wanted = is_pair ? 2 : nccl_.communicators[operation.comm].n_ranks;
    return operation.has(OPERATION_CAPTURED) || calls.n < 2 || calls.n != wanted ||
                   calls.first_ns == 0
               ? nullptr
               : &calls;
}

std::uint64_t LastCalls::after_first_ns(const Calls &calls) {
    return calls.has_several_hosts ? calls.last_ns - calls.first_ns
                                   : calls.most_monotonic_ns - calls.least_monotonic_ns;
}

std::optional<LastCall> LastCalls::of(const Operation &operation, std::size_t place,
                                      bool is_pair) const {
    const Calls *calls = whole(operation, place, is_pair);
    if (calls == nullptr || calls->n_earlier + 1 != calls->n)
        return std::nullopt;
    return LastCall{.rank = calls->last_rank, .after_first_ns = after_first_ns(*calls)};
}

std::optional<CallSpread> LastCalls::spread(const Operation &operation, std::size_t place,
                                            bool is_pair) const {
    const Calls *calls = whole(operation, place, is_pair);
    if (calls == nullptr || (calls->has_several_hosts && calls->lacks_bounds))
        return std::nullopt;
    if (!calls->has_several_hosts)
        return CallSpread{.least_ns = after_first_ns(*calls), .most_ns = after_first_ns(*calls)};
    return CallSpread{.least_ns = model::subtract_or_zero(calls->last_from_ns, calls->first_by_ns),
                      .most_ns = calls->latest_ns - calls->earliest_ns};
}

} // namespace collwire::nccl
