// SPDX-License-Identifier: Apache-2.0
// Realtime clocks that are minutes or hours apart, before anything else is joined by time. The
// ranks of a communicator create it together, and its hash is random: where both creations were
// recorded, their times show how far the clocks are apart, to some seconds.
#include <algorithm>
#include <map>
#include <vector>

#include "collwire/nccl_comm_records.h"
#include "correlate/model/connection.h"
#include "correlate/model/join.h"

namespace collwire::model {

namespace {

// By communicator and host: the first creation, realtime.
std::map<std::uint64_t, std::map<Index, std::uint64_t>> creations(const Model &model) {
    std::map<std::uint64_t, std::map<Index, std::uint64_t>> by_hash;
    for (const nccl::CommStream &stream : model.nccl.gathered.streams) {
        if (stream.session == NONE || model.sessions[stream.session].excluded)
            continue;
        const Index host = model.sessions[stream.session].host;
        for (const cw_nccl_comm &comm : stream.comms) {
            const std::uint64_t time_ns = model.hosts[host].realtime_ns(comm.header.time_ns);
            if ((comm.flags & CW_NCCL_COMM_CREATED) == 0 || comm.comm_hash == 0 || time_ns == 0)
                continue;
            const auto [at, is_new] = by_hash[comm.comm_hash].try_emplace(host, time_ns);
            at->second = std::min(at->second, time_ns);
        }
    }
    return by_hash;
}

} // namespace

void find_rough_clocks(Model &model) {
    std::vector<std::map<Index, std::uint64_t>> ahead_of(model.hosts.size()); // modulo 2^64
    for (const auto &[hash, times] : creations(model))
        for (const auto &[host, time_ns] : times) {
            const auto &[first, first_ns] = *times.begin();
            ahead_of[first].try_emplace(host, time_ns - first_ns);
            ahead_of[host].try_emplace(first, first_ns - time_ns);
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
            for (const auto &[other, ahead_ns] : ahead_of[host]) {
                if (known[other])
                    continue;
                known[other] = true;
                // Less is what joining by time allows for anyway.
                const bool is_apart =
                    ahead_ns + SKEW_UNKNOWN_NS / 2 > SKEW_UNKNOWN_NS; // modulo 2^64
                model.hosts[other].rough_ahead_ns =
                    model.hosts[host].rough_ahead_ns + (is_apart ? ahead_ns : 0);
                next.push_back(other);
            }
        }
    }
}

} // namespace collwire::model
