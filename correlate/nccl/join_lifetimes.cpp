// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/join_lifetimes.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace collwire::nccl {

namespace {

// Clocks differ by up to this much, and lifetimes are not compared more finely.
constexpr std::uint64_t SLACK_NS = 2'000'000'000;
// Most groups of a rank that are compared; and how much nearer the nearest one has to be.
constexpr std::size_t MAX_LOOKED_AT = 64;
constexpr std::uint64_t CLEARLY_NEARER = 4;

std::uint64_t apart(std::uint64_t a, std::uint64_t b) {
    return a > b ? a - b : b - a;
}

bool fit(const LivingGroup &a, const LivingGroup &b) {
    const auto is_after = [](std::uint64_t time_ns, std::uint64_t end_ns) {
        return end_ns < UINT64_MAX - SLACK_NS && time_ns > end_ns + SLACK_NS;
    };
    if (is_after(b.latest_begin_ns, a.first_end_ns) || is_after(a.latest_begin_ns, b.first_end_ns))
        return false;
    // An instance that existed before the other's creation is another communicator's.
    if ((a.created_ns != 0 && is_after(a.created_ns, b.begin_ns)) ||
        (b.created_ns != 0 && is_after(b.created_ns, a.begin_ns)))
        return false;
    const bool is_a_fewer = a.ranks.size() < b.ranks.size();
    const auto &fewer = is_a_fewer ? a.ranks : b.ranks;
    const auto &more = is_a_fewer ? b.ranks : a.ranks;
    return std::none_of(fewer.begin(), fewer.end(),
                        [&more](std::int32_t rank) { return more.contains(rank); });
}

// The groups that have some rank, in order: those recorded from their creation, and the others.
struct RankGroups {
    std::vector<Index> created;
    std::vector<Index> met;
    std::uint64_t watched_from_ns = 0;
    std::uint64_t watched_until_ns = UINT64_MAX;
};

class Uniter {
public:
    explicit Uniter(std::vector<LivingGroup> groups) : groups_(std::move(groups)) {}

    // Each union leaves fewer candidates for the others.
    std::vector<LivingGroup> run() {
        while (groups_.size() > 1 && unite_once())
            continue;
        return std::move(groups_);
    }

private:
    bool unite_once() {
        line_up();
        into_.resize(groups_.size());
        std::iota(into_.begin(), into_.end(), Index{0});
        merged_ = groups_;
        for (auto of = ranks_.begin(); of != ranks_.end(); ++of)
            for (const auto *groups : {&of->second.created, &of->second.met})
                for (const Index group : *groups)
                    unite_with_others(group, of);
        std::vector<LivingGroup> left;
        for (Index i = 0; i < groups_.size(); ++i)
            if (into_[i] == i)
                left.push_back(std::move(merged_[i]));
        const bool is_changed = left.size() != groups_.size();
        groups_ = std::move(left);
        return is_changed;
    }

    void line_up() {
        std::stable_sort(groups_.begin(), groups_.end(),
                         [](const LivingGroup &a, const LivingGroup &b) {
                             return std::pair(a.created_ns == 0, a.begin_ns) <
                                    std::pair(b.created_ns == 0, b.begin_ns);
                         });
        std::map<std::int32_t, RankGroups> by_rank;
        for (Index i = 0; i < groups_.size(); ++i) {
            const LivingGroup &group = groups_[i];
            for (const std::int32_t rank : group.ranks) {
                RankGroups &of = by_rank[rank];
                (group.created_ns != 0 ? of.created : of.met).push_back(i);
                of.watched_from_ns = std::max(of.watched_from_ns, group.watched_from_ns);
                of.watched_until_ns = std::min(of.watched_until_ns, group.watched_until_ns);
            }
        }
        ranks_.assign(by_rank.begin(), by_rank.end());
    }

    using Ranks = std::vector<std::pair<std::int32_t, RankGroups>>;

    // Compares with the next rank, the second next, the fourth, ...: so a rank that is missing or
    // ambiguous does not split a communicator, and thousands of ranks stay fast.
    void unite_with_others(Index group, Ranks::const_iterator of) {
        const std::size_t n = ranks_.size();
        const auto at = static_cast<std::size_t>(of - ranks_.begin());
        for (std::size_t step = 1; step < n; step *= 2) {
            const auto &[rank, others] = ranks_[(at + step) % n];
            if (merged_[leader_of(group)].ranks.contains(rank))
                continue;
            const Index other = choose(group, of->second, others);
            if (other == NONE || choose(other, others, of->second) != group)
                continue;
            unite(leader_of(group), leader_of(other));
        }
    }

    [[nodiscard]] Index leader_of(Index index) {
        while (into_[index] != index)
            index = into_[index] = into_[into_[index]];
        return index;
    }

    void unite(Index a, Index b) {
        if (a == b || !fit(merged_[a], merged_[b]))
            return;
        if (merged_[a].ranks.size() < merged_[b].ranks.size())
            std::swap(a, b);
        merged_[a].take(merged_[b]);
        into_[b] = a;
    }

    // The matching one of `others`. NONE: no match, or ambiguous.
    [[nodiscard]] Index choose(Index group, const RankGroups &own, const RankGroups &others) const {
        if (are_in_one_order(own, others)) {
            const auto at = std::lower_bound(own.created.begin(), own.created.end(), group);
            const Index other = others.created[static_cast<std::size_t>(at - own.created.begin())];
            return fit(groups_[group], groups_[other]) ? other : NONE;
        }
        Choice choice;
        look_at_met(groups_[group], others.met, choice);
        look_at_created(groups_[group], others.created, choice);
        const bool is_clear =
            choice.n == 1 || (choice.n_met == 0 && groups_[group].created_ns != 0 &&
                              choice.second_ns / CLEARLY_NEARER > choice.best_ns);
        return is_clear ? choice.best : NONE;
    }

    // Ranks create communicators in one order; all of both ranks were recorded.
    [[nodiscard]] bool are_in_one_order(const RankGroups &a, const RankGroups &b) const {
        if (!a.met.empty() || !b.met.empty() || a.created.size() != b.created.size())
            return false;
        const std::uint64_t from_ns = std::max(a.watched_from_ns, b.watched_from_ns);
        const std::uint64_t until_ns = std::min(a.watched_until_ns, b.watched_until_ns);
        const auto is_watched = [&](const RankGroups &of) {
            return groups_[of.created.front()].created_ns >= from_ns &&
                   groups_[of.created.back()].created_ns <= until_ns;
        };
        return is_watched(a) && is_watched(b);
    }

    struct Choice {
        Index best = NONE;
        std::size_t n = 0;
        std::size_t n_met = 0;
        std::uint64_t best_ns = UINT64_MAX;
        std::uint64_t second_ns = UINT64_MAX;
    };

    void look_at_met(const LivingGroup &group, const std::vector<Index> &met,
                     Choice &choice) const {
        if (met.size() > MAX_LOOKED_AT)
            choice.n = choice.n_met = met.size();
        for (std::size_t i = 0; i < met.size() && choice.n < 2; ++i) {
            if (!fit(group, groups_[met[i]]))
                continue;
            choice.best = met[i];
            ++choice.n;
            ++choice.n_met;
        }
    }

    void look_at_created(const LivingGroup &group, const std::vector<Index> &created,
                         Choice &choice) const {
        const std::uint64_t time_ns = group.created_ns != 0 ? group.created_ns : group.begin_ns;
        const auto at =
            static_cast<std::size_t>(std::lower_bound(created.begin(), created.end(), time_ns,
                                                      [&](Index index, std::uint64_t time) {
                                                          return groups_[index].created_ns < time;
                                                      }) -
                                     created.begin());
        const std::size_t first = at - std::min(at, MAX_LOOKED_AT);
        const std::size_t last = std::min(created.size(), at + MAX_LOOKED_AT);
        for (std::size_t i = first; i < last; ++i) {
            const LivingGroup &other = groups_[created[i]];
            if (!fit(group, other))
                continue;
            ++choice.n;
            const std::uint64_t apart_ns = apart(time_ns, other.created_ns);
            if (apart_ns < choice.best_ns) {
                choice.second_ns = std::exchange(choice.best_ns, apart_ns);
                choice.best = created[i];
            } else {
                choice.second_ns = std::min(choice.second_ns, apart_ns);
            }
        }
    }

    std::vector<LivingGroup> groups_;
    std::vector<LivingGroup> merged_; // of this round
    std::vector<Index> into_;         // of this round: the group it was united with
    Ranks ranks_;
};

} // namespace

void LivingGroup::take(const LivingGroup &other) {
    instances.insert(instances.end(), other.instances.begin(), other.instances.end());
    ranks.insert(other.ranks.begin(), other.ranks.end());
    begin_ns = std::min(begin_ns, other.begin_ns);
    latest_begin_ns = std::max(latest_begin_ns, other.latest_begin_ns);
    first_end_ns = std::min(first_end_ns, other.first_end_ns);
    if (created_ns == 0)
        created_ns = other.created_ns;
    watched_from_ns = std::max(watched_from_ns, other.watched_from_ns);
    watched_until_ns = std::min(watched_until_ns, other.watched_until_ns);
}

std::vector<LivingGroup> join_lifetimes(std::vector<LivingGroup> groups) {
    return Uniter(std::move(groups)).run();
}

} // namespace collwire::nccl
