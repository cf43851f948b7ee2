// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/common_clock.h"

#include <utility>

namespace collwire::nccl {

using model::Index;

CommonClock::CommonClock(const model::Model &model)
    : model_(model), ahead_ns_(model.hosts.size(), 0) {
    std::vector<std::vector<std::pair<Index, std::uint64_t>>> near(model.hosts.size());
    for (const model::ClockDifference &pair : model.clock_differences) {
        const auto apart = static_cast<std::uint64_t>(pair.b_minus_a_ns);
        near[pair.host_a].emplace_back(pair.host_b, apart);
        near[pair.host_b].emplace_back(pair.host_a, 0 - apart);
    }
    std::vector<bool> known(model.hosts.size());
    std::vector<Index> next;
    for (Index first = 0; first < model.hosts.size(); ++first) {
        if (known[first])
            continue;
        known[first] = true;
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
    const std::uint64_t realtime_ns = model_.hosts[host].realtime_ns(monotonic_ns);
    return realtime_ns == 0 ? 0 : realtime_ns - ahead_ns_[host];
}

} // namespace collwire::nccl
