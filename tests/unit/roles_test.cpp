// SPDX-License-Identifier: Apache-2.0
// What communicators are guessed to be for, against jobs whose layouts are known.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "collwire/nccl_launch_records.h"
#include "correlate/roles/facts.h"
#include "correlate/roles/group_jobs.h"
#include "correlate/roles/label.h"
#include "correlate/roles/rank_work.h"
#include "tests/unit/roles_layouts.h"

namespace collwire::roles::test {
namespace {

constexpr int LAYOUTS = 100, LAYOUTS_FULL = 20'000;

struct RoleCounts {
    std::size_t right = 0, none = 0, wrong = 0;
};
using Counts = std::map<std::string, RoleCounts>;

void count(const JobLayout &layout, Counts &counts) {
    const MadeJob job = make_job(layout);
    const std::vector<RoleGuess> guesses = guess_job(job.facts);
    ASSERT_EQ(guesses.size(), job.roles.size());
    for (std::size_t i = 0; i < guesses.size(); ++i) {
        const std::string &truth = job.roles[i];
        const std::string guess(guessed_role_name(guesses[i].role));
        const bool is_right = truth == "dp or none" ? guess == "dp" : guess == truth;
        RoleCounts &of = counts[truth.empty() ? "others" : truth];
        EXPECT_FALSE(guesses[i].reason.empty()) << layout.text();
        if (guess.empty())
            ++of.none;
        else if (is_right)
            ++of.right;
        else
            ++of.wrong;
        EXPECT_TRUE(guess.empty() || is_right) << layout.text() << ": " << truth << " taken for "
                                               << guess << ": " << guesses[i].reason;
    }
}

std::map<std::string, std::string> roles_of(const JobLayout &layout) {
    const MadeJob job = make_job(layout);
    const std::vector<RoleGuess> guesses = guess_job(job.facts);
    std::map<std::string, std::string> roles;
    for (std::size_t i = 0; i < guesses.size(); ++i)
        roles[job.roles[i]] = guessed_role_name(guesses[i].role);
    return roles;
}

std::string reason_of(const JobLayout &layout, const std::string &role) {
    const MadeJob job = make_job(layout);
    const std::vector<RoleGuess> guesses = guess_job(job.facts);
    for (std::size_t i = 0; i < guesses.size(); ++i)
        if (job.roles[i] == role)
            return guesses[i].reason;
    return {};
}

JobLayout made_up(std::mt19937 &random) {
    const auto one_of = [&](std::initializer_list<std::int32_t> values) {
        return *(values.begin() +
                 std::uniform_int_distribution<std::ptrdiff_t>(0, std::ssize(values) - 1)(random));
    };
    JobLayout layout;
    layout.tensor = one_of({1, 2, 4, 8});
    layout.context = one_of({1, 1, 1, 2, 4, 8});
    layout.data = one_of({1, 2, 3, 4, 8, 16});
    layout.stages = one_of({1, 1, 2, 3, 4});
    layout.experts = one_of({1, 1, 2, 4, 8, 16});
    layout.gpus = one_of({1, 2, 4, 8, 8});
    layout.order = static_cast<RankOrder>(one_of({0, 0, 1, 2, 3}));
    layout.gradients = static_cast<Gradients>(one_of({0, 1, 2, 3, 4}));
    layout.context_exchange = static_cast<ContextExchange>(one_of({0, 1, 2}));
    layout.expert_exchange = static_cast<ExpertExchange>(one_of({0, 1, 2}));
    layout.has_sequence_parallel = one_of({0, 1}) == 1;
    layout.has_world = one_of({0, 1}) == 1;
    layout.microbatches = one_of({1, 2, 8});
    layout.rounds = one_of({1, 1, 2, 4});
    layout.layers = one_of({1, 4});
    layout.missing_node = one_of({-1, -1, 0, 1});
    layout.seed = static_cast<std::uint32_t>(random());
    return layout;
}

TEST(Roles, OfMadeUpLayoutsAreRightOrNone) {
    std::mt19937 random(20'260'101); // NOLINT(cert-msc51-cpp): the same layouts in each run
    Counts counts;
    const char *full = std::getenv("COLLWIRE_FULL");
    const int most = full != nullptr && std::string_view(full) == "1" ? LAYOUTS_FULL : LAYOUTS;
    for (int made = 0; made < most;) {
        const JobLayout layout = made_up(random);
        if (!layout.is_possible() || layout.ranks() > 256)
            continue;
        ++made;
        count(layout, counts);
    }
    for (const auto &[role, of] : counts) {
        std::fputs(
            fmt::format("{}: {} right, {} none, {} wrong\n", role, of.right, of.none, of.wrong)
                .c_str(),
            stdout);
        EXPECT_EQ(of.wrong, 0U) << role;
    }
    for (const char *role : {"dp", "tp", "pp", "ep"})
        EXPECT_GT(counts[role].right, counts[role].none / 10) << role;
}

// Each was wrong once.
TEST(Roles, OfDeceptiveLayoutsAreRightOrNone) {
    Counts counts;
    // Tokens of all ranks by AllGather, gradients in two steps.
    count({.tensor = 4,
           .data = 4,
           .experts = 4,
           .gpus = 4,
           .gradients = Gradients::TwoSteps,
           .expert_exchange = ExpertExchange::AllGather},
          counts);
    // Embeddings of two stages, whose transfers do not tell a pipeline.
    count({.data = 8, .stages = 2, .gradients = Gradients::OneBucket, .microbatches = 1}, counts);
    // The ranks that are missing are those that two communicators share.
    count({.context = 8,
           .data = 2,
           .experts = 2,
           .order = RankOrder::Cyclic,
           .gradients = Gradients::Sharded,
           .context_exchange = ContextExchange::AllToAll,
           .expert_exchange = ExpertExchange::AllGather,
           .missing_node = 0},
          counts);
    // An exchange of context parallelism among the ranks of one of experts.
    count({.tensor = 4,
           .context = 8,
           .data = 3,
           .experts = 8,
           .gpus = 4,
           .context_exchange = ContextExchange::AllToAll},
          counts);
    EXPECT_EQ(counts.size(), 6U);
}

TEST(Roles, OfUsualLayoutsAreKnown) {
    using Map = std::map<std::string, std::string>;
    EXPECT_EQ(roles_of({.tensor = 8, .data = 8}), (Map{{"tp", "tp"}, {"dp", "dp"}}));
    EXPECT_EQ(roles_of({.tensor = 4, .data = 8, .stages = 4, .has_world = true}),
              (Map{{"tp", "tp"}, {"dp", "dp"}, {"pp", "pp"}, {"", ""}}));
    EXPECT_EQ(roles_of({.data = 32, .gradients = Gradients::LayerByLayer}), (Map{{"dp", "dp"}}));
    EXPECT_EQ(
        roles_of(
            {.tensor = 2, .context = 4, .data = 8, .context_exchange = ContextExchange::AllGather}),
        (Map{{"tp", "tp"}, {"dp", "dp"}, {"", ""}}));
    EXPECT_EQ(roles_of({.data = 64, .experts = 8, .expert_exchange = ExpertExchange::Uneven})["ep"],
              "ep");
    EXPECT_EQ(roles_of({.tensor = 4, .data = 4, .gpus = 4}), (Map{{"tp", "tp"}, {"dp", "dp"}}));
}

// Two roles fit.
TEST(Roles, AreNotGuessedWhereTwoFit) {
    using Map = std::map<std::string, std::string>;
    EXPECT_EQ(roles_of({.tensor = 8}), (Map{{"tp", ""}}));
    EXPECT_EQ(roles_of({.data = 8}), (Map{{"dp", ""}}));
    EXPECT_EQ(roles_of({.tensor = 4, .data = 4, .gpus = 1}), (Map{{"tp", ""}, {"dp", ""}}));
    EXPECT_EQ(roles_of({.data = 16, .gradients = Gradients::OneBucket}), (Map{{"dp", ""}}));
    EXPECT_EQ(roles_of({.tensor = 8, .data = 8, .stages = 2, .microbatches = 1})["pp"], "");
    // Of 2 x 8 GPUs in turn, data parallelism has all of a node.
    EXPECT_EQ(roles_of({.tensor = 2, .data = 8, .order = RankOrder::Cyclic}),
              (Map{{"tp", ""}, {"dp", ""}}));
    // Sharded on a node, reduced between nodes.
    const JobLayout hybrid = {.data = 32, .gradients = Gradients::TwoSteps};
    const MadeJob job = make_job(hybrid);
    for (const RoleGuess &guess : guess_job(job.facts))
        EXPECT_NE(guess.role, GuessedRole::TensorParallel) << guess.reason;
}

TEST(Roles, HaveTheirEvidence) {
    const JobLayout layout = {.tensor = 8, .data = 8, .stages = 4, .has_world = true};
    EXPECT_EQ(reason_of(layout, "tp"),
              "8 ranks of one node, stride 1, 480 large ReduceScatter, AllGather (1 size): "
              "neighbours on a node, groups of 8 ranks across them reduce gradients");
    EXPECT_EQ(reason_of(layout, "dp"),
              "8 ranks on 8 nodes, stride 8, 9 large AllReduce (2 sizes): one rank of each of 8 "
              "groups of neighbours on a node, and of each pipeline");
    EXPECT_EQ(reason_of(layout, "pp"), "4 ranks on 4 nodes, 72 sends between neighbours: a "
                                       "chain that is no ring");
}

TEST(Roles, OfAnEmptyJobAreNone) {
    EXPECT_TRUE(guess_job({}).empty());
    JobFacts strange;
    strange.places.resize(1);
    strange.groups.resize(3);
    strange.groups[0].n_ranks = INT32_MAX;
    strange.groups[0].members = {{INT32_MIN, 0}, {INT32_MAX, 0}};
    strange.groups[0].transfers[{INT32_MAX, 5}] = 1;
    strange.groups[1].n_ranks = -5;
    strange.groups[1].collectives[{Movement::AllReduce, UINT64_MAX}] = 100;
    for (const RoleGuess &guess : guess_job(strange))
        EXPECT_EQ(guess.role, GuessedRole::None);
}

// A group with members that called what the group has, each its own part.
GroupFacts from_ranks(const GroupFacts &group) {
    GroupMaker maker;
    for (const Member &member : group.members) {
        RankWork work;
        for (const auto &[kind, n] : group.collectives)
            if (kind.bytes < LARGE_BYTES)
                for (std::uint64_t i = 0; i < n; ++i)
                    work.add_collective(kind);
        for (const CollectiveKind &kind : group.latest)
            work.add_collective(kind);
        auto size = group.transfer_sizes.begin();
        for (const auto &[edge, n] : group.transfers) {
            for (std::uint64_t i = 0; i < n; ++i) {
                if (edge.first == member.rank)
                    work.add_transfer(true, edge.second, size->first);
                if (edge.second == member.rank)
                    work.add_transfer(false, edge.first, size->first);
                size = std::next(size) == group.transfer_sizes.end() ? group.transfer_sizes.begin()
                                                                     : std::next(size);
            }
        }
        work.takes_turns = group.takes_turns;
        work.finish();
        maker.add(member, std::move(work));
    }
    return maker.take(group.n_ranks, group.n_nodes);
}

// As a stream of records has them: rank by rank, all jobs at once.
TEST(Roles, OfGroupsMadeOfTheirRanksAreTheSame) {
    const JobLayout layouts[] = {
        {.tensor = 8, .data = 8, .stages = 4, .has_world = true},
        {.tensor = 4, .data = 8, .stages = 2, .microbatches = 8},
        {.data = 64, .experts = 8, .expert_exchange = ExpertExchange::Uneven},
        {.data = 32, .gradients = Gradients::TwoSteps},
        {.tensor = 8, .data = 8, .missing_node = 1}};
    std::vector<GroupFacts> groups;
    std::vector<Device> devices;
    std::vector<std::string> expected;
    std::uint32_t first_host = 0;
    for (const JobLayout &layout : layouts) {
        const MadeJob job = make_job(layout);
        for (const RoleGuess &guess : guess_job(job.facts))
            expected.push_back(guess.reason);
        const std::size_t first_place = devices.size();
        for (const Place &place : job.facts.places)
            devices.push_back({.host = first_host + place.node, .bus_id = 0x1000 + place.gpu});
        for (const GroupFacts &group : job.facts.groups) {
            groups.push_back(from_ranks(group));
            for (Member &member : groups.back().members)
                member.place += first_place;
        }
        first_host += 1000;
    }
    std::vector<std::string> found;
    for (const RoleGuess &guess : guess_groups(std::move(groups), devices))
        found.push_back(guess.reason);
    EXPECT_EQ(found, expected);
}

TEST(Roles, TheLatestCollectivesOfARankAreKept) {
    RankWork work;
    const std::size_t n = 3 * RankWork::MOST_LATEST + 5;
    for (std::size_t i = 0; i < n; ++i)
        work.add_collective({Movement::AllReduce, LARGE_BYTES + i});
    work.finish();
    ASSERT_EQ(work.latest.size(), RankWork::MOST_LATEST);
    EXPECT_EQ(work.latest.back().bytes, LARGE_BYTES + n - 1);
    EXPECT_EQ(work.latest.front().bytes, LARGE_BYTES + n - RankWork::MOST_LATEST);
    for (std::size_t i = 0; i < 2 * RankWork::MOST_SIZES; ++i)
        work.add_transfer(true, 1, i);
    EXPECT_EQ(work.sent_sizes.size(), RankWork::MOST_SIZES);
    EXPECT_EQ(work.sends.at(1), 2 * RankWork::MOST_SIZES);
}

TEST(Roles, WholeBuffersAreCompared) {
    EXPECT_EQ(kind_of(CW_NCCL_ALL_GATHER, 1024, 8),
              (CollectiveKind{Movement::AllGather, std::uint64_t{8} * 1024}));
    EXPECT_EQ(kind_of(CW_NCCL_ALL_REDUCE, 1024, 8), (CollectiveKind{Movement::AllReduce, 1024}));
    EXPECT_EQ(kind_of(CW_NCCL_REDUCE_SCATTER, UINT64_MAX, 8).bytes, UINT64_MAX);
}

TEST(Roles, TransfersOfOneLaunchAreNoTurns) {
    TurnCounter turns, exchange;
    for (std::uint64_t i = 0; i < 8; ++i) {
        turns.add(i / 4 == 0, i); // four sends, then four receives
        exchange.add(true, i);
        exchange.add(false, i);
    }
    EXPECT_TRUE(turns.takes_turns());
    EXPECT_FALSE(exchange.takes_turns());
}

// Launches of one rank are missing: whether they take turns is not known.
TEST(Roles, AnUnknownTurnOfOneRankIsUnknown) {
    for (const bool has_both : {true, false}) {
        GroupMaker maker;
        for (std::int32_t rank = 0; rank < 2; ++rank) {
            RankWork work;
            work.add_transfer(rank == 0, 1 - rank, LARGE_BYTES);
            if (has_both || rank == 0)
                work.takes_turns = true;
            maker.add({rank, static_cast<std::size_t>(rank)}, std::move(work));
        }
        EXPECT_EQ(maker.take(2, 2).takes_turns.has_value(), has_both);
    }
}

TEST(Roles, AGuessIsMarkedAndNeverInPlaceOfAName) {
    EXPECT_EQ(label_of("data0", 0x11, "tp"), "data0");
    EXPECT_EQ(label_of("", 0x11, "tp"), "0x0000000000000011 (tp?)");
    EXPECT_EQ(label_of("", 0x11, ""), "0x0000000000000011");
    EXPECT_EQ(title_of("data0", 0x11, "tp", 8), "data0 (8 ranks)");
    EXPECT_EQ(title_of("", 0x11, "tp", 8), "0x0000000000000011 (tp?, 8 ranks)");
    EXPECT_EQ(title_of("", 0x11, "", 8), "0x0000000000000011 (8 ranks)");
    EXPECT_EQ(mark_of(""), "");
}

} // namespace
} // namespace collwire::roles::test
