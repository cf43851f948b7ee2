// SPDX-License-Identifier: Apache-2.0
#include "correlate/roles/pipelines.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "correlate/roles/traffic.h"

namespace collwire::roles {
namespace {

// Pairs of ranks that each have a communicator of their own, joined where they share a rank.
class PairChainFinder {
public:
    PairChainFinder(const JobFacts &job, const std::vector<std::size_t> &pairs)
        : job_(job), pairs_(pairs), of_place_(job.places.size()) {
        for (const std::size_t index : pairs_)
            for (const Member &member : job_.groups[index].members)
                of_place_[member.place].push_back(index);
    }

    // The pairs of one chain, whether it is whole and open, and its ranks.
    struct PairChain {
        std::vector<std::size_t> pairs;
        std::vector<std::size_t> places;
        std::size_t n_ranks = 0; // captured or not
        bool is_open = true;
    };

    std::vector<PairChain> all() {
        const bool are_apart = are_pairs_apart();
        std::vector<char> is_done(job_.groups.size()), has_place(job_.places.size());
        std::vector<PairChain> chains;
        for (const std::size_t first : pairs_) {
            if (std::exchange(is_done[first], 1) != 0)
                continue;
            PairChain chain;
            chain.pairs.push_back(first);
            for (std::size_t i = 0; i < chain.pairs.size(); ++i) {
                const auto &members = job_.groups[chain.pairs[i]].members;
                chain.is_open = chain.is_open && (members.size() == 2 || are_apart);
                chain.n_ranks += are_apart ? 2 : 0;
                for (const Member &member : members) {
                    chain.is_open = chain.is_open && of_place_[member.place].size() <= 2;
                    if (std::exchange(has_place[member.place], 1) == 0)
                        chain.places.push_back(member.place);
                    for (const std::size_t next : of_place_[member.place])
                        if (std::exchange(is_done[next], 1) == 0)
                            chain.pairs.push_back(next);
                }
            }
            // As many pairs as ranks: closed.
            if (!are_apart)
                chain.n_ranks = chain.places.size();
            chain.is_open = chain.is_open && chain.pairs.size() + 1 == chain.n_ranks;
            chains.push_back(std::move(chain));
        }
        return chains;
    }

private:
    // Each rank has one pair alone, and both ranks of some pair are captured: then those of which
    // one is missing are such pairs, too.
    bool are_pairs_apart() const {
        return std::ranges::all_of(of_place_, [](const auto &of) { return of.size() <= 1; }) &&
               std::ranges::any_of(pairs_, [&](std::size_t index) {
                   return job_.groups[index].members.size() == 2;
               });
    }

    const JobFacts &job_;
    const std::vector<std::size_t> &pairs_;
    std::vector<std::vector<std::size_t>> of_place_;
};

std::string stages_text(const JobFacts &job, const GroupFacts &group) {
    const std::size_t nodes = nodes_of(job, group);
    return fmt::format("{} ranks {}, {}", group.n_ranks,
                       nodes == 1 ? "of one node" : fmt::format("on {} nodes", nodes),
                       traffic_text(group));
}

} // namespace

Pipelines find_pipelines(const JobFacts &job, std::vector<RoleGuess> &guesses) {
    Pipelines found;
    found.axis.group_of.assign(job.places.size(), NO_GROUP);
    const auto add = [&](std::size_t first, const std::vector<std::size_t> &places,
                         std::int32_t n_ranks) {
        found.is_known = found.is_known && (!found.has_any || found.axis.n_ranks == n_ranks);
        found.has_any = true;
        found.axis.n_ranks = n_ranks;
        found.axis.groups.push_back(first);
        found.axis.ranks += static_cast<std::uint64_t>(n_ranks);
        for (const std::size_t place : places) {
            found.is_known = found.is_known && found.axis.group_of[place] == NO_GROUP;
            found.axis.group_of[place] = first;
        }
    };
    std::vector<std::size_t> pairs;
    for (std::size_t i = 0; i < job.groups.size(); ++i) {
        const GroupFacts &group = job.groups[i];
        const TransferShape shape = transfer_shape(group);
        if (shape == TransferShape::None || shape == TransferShape::AllToAll)
            continue;
        const std::string text = stages_text(job, group);
        RoleGuess &guess = guesses[i];
        if (large_collectives(group).n != 0) {
            guess.reason = text + ": no role has both";
        } else if (shape == TransferShape::Chain) {
            guess = {GuessedRole::Pipeline, text + " between neighbours: a chain that is no ring"};
            std::vector<std::size_t> places;
            for (const Member &member : group.members)
                places.push_back(member.place);
            add(i, places, group.n_ranks);
        } else if (shape == TransferShape::TurnsOfTwo) {
            pairs.push_back(i);
        } else if (shape == TransferShape::Ring || shape == TransferShape::Pair) {
            guess.reason =
                text + ": pipeline parallelism and an exchange of context parallelism fit";
        } else {
            guess.reason = text + ": no known pattern, or not all of it is captured";
        }
    }
    for (const auto &chain : PairChainFinder(job, pairs).all()) {
        const auto n_ranks = static_cast<std::int32_t>(chain.n_ranks);
        for (const std::size_t index : chain.pairs) {
            const std::string text = stages_text(job, job.groups[index]);
            guesses[index] =
                chain.is_open
                    ? RoleGuess{GuessedRole::Pipeline,
                                fmt::format("{} that take turns; {} stage(s) in a chain", text,
                                            n_ranks)}
                    : RoleGuess{GuessedRole::None,
                                text + ": pairs form a ring, or not all of them are captured"};
        }
        if (chain.is_open)
            add(chain.pairs.front(), chain.places, n_ranks);
    }
    return found;
}

} // namespace collwire::roles
