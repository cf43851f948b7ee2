// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/common_clock.h"

#include <utility>

namespace collwire::nccl {

using model::Index;

CommonClock::CommonClock(const model::Model &model)
    : model_(model), ahead_ns_(model.hosts.size(), 0), label_ns_(model.hosts.size()) {
    solve_by_differences();
    for (Index host = 0; host < model.clocks.nodes.size(); ++host) {
        const clocks::NodeClock &clock = model.clocks.nodes[host];
        if (clock.knots.empty() || model.hosts[clock.reference].anchors.empty())
            continue;
        const model::ClockAnchor &anchor = model.hosts[clock.reference].anchors.front();
        label_ns_[host] = anchor.realtime_ns - anchor.monotonic_ns - ahead_ns_[clock.reference];
    }
}

void CommonClock::solve_by_differences() {
    std::vector<std::vector<std::pair<Index, std::uint64_t>>> near(model_.hosts.size());
    for (const model::ClockDifference &pair : model_.clock_differences) {
        const auto apart = static_cast<std::uint64_t>(pair.b_minus_a_ns);
        near[pair.host_a].emplace_back(pair.host_b, apart);
        near[pair.host_b].emplace_back(pair.host_a, 0 - apart);
    }
    std::vector<bool> known(model_.hosts.size());
    std::vector<Index> next;
    for (Index first = 0; first < model_.hosts.size(); ++first) {
        if (known[first])
            continue;
        known[first] = true;
        ahead_ns_[first] = model_.hosts[first].rough_ahead_ns;
        next.assign(1, first);
        while (!next.empty()) {
            const Index host = next.back();
            next.pop_back();
            for (const auto &[other, apart] : near[host]) {
                if (known[other])
                    continue;
                known[other] = true;
                ahead_ns_[other] = ahead_ns_[host] + apart;
                next.push_back(other);
            }
        }
    }
}

std::uint64_t CommonClock::time_ns(Index host, std::uint64_t monotonic_ns) const {
    if (label_ns_[host])
        if (const auto at = model_.clocks.on_reference(host, monotonic_ns))
            return static_cast<std::uint64_t>(at->middle_ns()) + *label_ns_[host];
    const std::uint64_t realtime_ns = model_.hosts[host].realtime_ns(monotonic_ns);
    return realtime_ns == 0 ? 0 : realtime_ns - ahead_ns_[host];
}

CommonTime CommonClock::time(Index host, std::uint64_t monotonic_ns) const {
    if (label_ns_[host])
        if (const auto at = model_.clocks.on_reference(host, monotonic_ns))
            return {static_cast<std::uint64_t>(at->middle_ns()) + *label_ns_[host],
                    static_cast<std::uint64_t>(at->least_ns) + *label_ns_[host],
                    static_cast<std::uint64_t>(at->most_ns) + *label_ns_[host]};
    return {time_ns(host, monotonic_ns), 0, 0};
}

clocks::Order CommonClock::order(Index host_a, std::uint64_t a_ns, Index host_b,
                                 std::uint64_t b_ns) const {
    return model_.clocks.order(host_a, a_ns, host_b, b_ns);
}

} // namespace collwire::nccl
