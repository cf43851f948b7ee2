// SPDX-License-Identifier: Apache-2.0
#include "correlate/diagnose/network.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "correlate/diagnose/evidence.h"

namespace collwire::diagnose {
namespace {

using inspect::Transfer;
using inspect::Wait;

// From one rank to another: the channels with lost data or clear-to-send.
struct Lost {
    std::set<std::int32_t> data, room;
};
using LostByWay = std::map<std::pair<std::int32_t, std::int32_t>, Lost>; // from, to

// Two ranks, the lower one first, and what is lost between them.
using Pairs = std::map<std::pair<std::int32_t, std::int32_t>, std::vector<std::string>>;

// Its receiver has sent clear-to-send for the step that it wants to send.
bool has_been_given_room(const Transfer &send, const std::vector<End> &receives) {
    return std::ranges::any_of(receives, [&send](const End &receive) {
        return receive.transfer->wait != Wait::Moving &&
               receive.transfer->base <= send.base + send.last.transmitted &&
               receive.transfer->base + receive.transfer->last.posted >
                   send.base + send.last.transmitted;
    });
}

LostByWay find_lost(const Communicator &comm, const Ends &ends) {
    LostByWay lost;
    for (const auto &[way, sends] : ends.sends) {
        // A missing rank is reported by find_causes().
        if (find_rank(comm, way.from) == nullptr || find_rank(comm, way.to) == nullptr)
            continue;
        const auto receives = ends.receives.find(way);
        for (const End &send : sends) {
            if (send.transfer->wait == Wait::Network)
                lost[{way.from, way.to}].data.insert(way.channel);
            if (send.transfer->wait == Wait::Credit && send.transfer->has_credit == false &&
                receives != ends.receives.end() &&
                has_been_given_room(*send.transfer, receives->second))
                lost[{way.to, way.from}].room.insert(way.channel);
        }
    }
    return lost;
}

std::string channels_text(const std::set<std::int32_t> &channels) {
    return fmt::format("{} channel{}", channels.size(), channels.size() == 1 ? "" : "s");
}

Pairs pairs_of(const Communicator &comm, const LostByWay &lost) {
    Pairs pairs;
    for (const auto &[way, what] : lost) {
        const auto &[from, to] = way;
        std::vector<std::string> &texts = pairs[std::minmax(from, to)];
        if (!what.data.empty())
            texts.push_back(fmt::format("data that {} sent to {} is not acknowledged ({})",
                                        name_of(comm, from), name_of(comm, to),
                                        channels_text(what.data)));
        if (!what.room.empty())
            texts.push_back(fmt::format("clear-to-send from {} never reached {} ({})",
                                        name_of(comm, from), name_of(comm, to),
                                        channels_text(what.room)));
    }
    return pairs;
}

// The value that all pairs have in common: a rank or a host. `of` maps a rank to it.
template <typename Of> auto common_to(const Pairs &pairs, Of of) {
    using Value = decltype(of(0));
    std::set<Value> common;
    bool is_first = true;
    for (const auto &[pair, texts] : pairs) {
        const std::set<Value> both{of(pair.first), of(pair.second)};
        if (is_first)
            common = both;
        else
            std::erase_if(common, [&](const Value &value) { return !both.contains(value); });
        is_first = false;
    }
    return common;
}

std::set<std::int32_t> ranks_of(const Pairs &pairs) {
    std::set<std::int32_t> ranks;
    for (const auto &[pair, texts] : pairs)
        ranks.insert({pair.first, pair.second});
    return ranks;
}

// `rank` represents what the pairs have in common; `inside` are the ranks of it.
Cause cause_of_all(const Communicator &comm, const Pairs &pairs, std::int32_t rank,
                   const std::string &name, const std::set<std::int32_t> &inside) {
    std::set<std::int32_t> others = ranks_of(pairs);
    std::erase_if(others, [&](std::int32_t other) { return inside.contains(other); });
    Cause cause;
    cause.kind = Kind::Network;
    cause.rank = rank;
    cause.sentence = fmt::format("{} is cut off from rank{} {}", name,
                                 others.size() == 1 ? "" : "s", fmt::join(others, ", "));
    for (const auto &[pair, texts] : pairs)
        cause.evidence.insert(cause.evidence.end(), texts.begin(), texts.end());
    std::ranges::move(evidence_of(*find_rank(comm, rank)), std::back_inserter(cause.evidence));
    for (const std::int32_t other : others)
        cause.evidence.push_back(
            fmt::format("rank {}: {}", other, ports_text(*find_rank(comm, other))));
    return cause;
}

Cause cause_of_pair(const Communicator &comm, const LostByWay &lost,
                    std::pair<std::int32_t, std::int32_t> pair,
                    const std::vector<std::string> &texts) {
    // The sender of lost data is the one that notices.
    if (!lost.contains(pair))
        std::swap(pair.first, pair.second);
    Cause cause;
    cause.kind = Kind::Network;
    cause.rank = pair.first;
    cause.peer = pair.second;
    cause.sentence = fmt::format("{}", fmt::join(texts, "; "));
    cause.evidence = evidence_of(*find_rank(comm, pair.first));
    cause.evidence.push_back(
        fmt::format("rank {}: {}", pair.second, ports_text(*find_rank(comm, pair.second))));
    return cause;
}

} // namespace

std::vector<Cause> find_network_causes(const Communicator &comm, const Ends &ends) {
    const LostByWay lost = find_lost(comm, ends);
    const Pairs pairs = pairs_of(comm, lost);
    if (pairs.size() > 1) {
        const auto ranks = common_to(pairs, [](std::int32_t rank) { return rank; });
        if (ranks.size() == 1)
            return {
                cause_of_all(comm, pairs, *ranks.begin(), name_of(comm, *ranks.begin()), ranks)};
        const auto hosts =
            common_to(pairs, [&](std::int32_t rank) { return find_rank(comm, rank)->host; });
        if (hosts.size() == 1) {
            std::set<std::int32_t> inside = ranks_of(pairs);
            std::erase_if(inside, [&](std::int32_t rank) {
                return find_rank(comm, rank)->host != *hosts.begin();
            });
            return {cause_of_all(comm, pairs, *inside.begin(), "host " + *hosts.begin(), inside)};
        }
    }
    std::vector<Cause> causes;
    for (const auto &[pair, texts] : pairs)
        causes.push_back(cause_of_pair(comm, lost, pair, texts));
    return causes;
}

} // namespace collwire::diagnose
