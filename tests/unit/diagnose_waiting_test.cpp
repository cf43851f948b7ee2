// SPDX-License-Identifier: Apache-2.0
// Ranks that have not come, ranks that wait for each other in circles, and ranks that wait inside
// NCCL.
#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "correlate/diagnose/circles.h"
#include "correlate/diagnose/diagnosis.h"
#include "correlate/diagnose/render.h"
#include "correlate/inspect/json.h"
#include "tests/support/inspection_builder.h"

namespace collwire::test {
namespace {

using diagnose::Kind;
using diagnose::WaitEdge;
using inspect::Inspection;
using inspect::Phase;

constexpr std::uint64_t SECOND = 0x99;

inspect::UnreadyComm unready(std::int32_t rank, std::int32_t n_ranks, Phase phase,
                             std::int32_t awaited) {
    inspect::UnreadyComm comm;
    comm.address = 0xd00d;
    comm.hash = SECOND;
    comm.magic = 0x77;
    comm.rank = rank;
    comm.n_ranks = n_ranks;
    comm.phase = phase;
    comm.tid = 100 + static_cast<std::uint32_t>(rank);
    comm.awaits = {{awaited, {}, "it has not reported to the bootstrap"}};
    return comm;
}

// A process that has no communicator yet.
Inspection only_unready(inspect::UnreadyComm comm) {
    Inspection inspection = one_rank(comm.rank, comm.n_ranks, 0, {});
    inspection.processes[0].communicators.clear();
    inspection.processes[0].proxies.clear();
    inspection.processes[0].unready = {std::move(comm)};
    return inspection;
}

TEST(Unready, RankThatNoFileHasIsMissing) {
    const std::vector<Inspection> all{only_unready(unready(0, 4, Phase::Ring, 3)),
                                      only_unready(unready(1, 4, Phase::Exchange, 0)),
                                      only_unready(unready(2, 4, Phase::Root, 3))};
    const auto diagnosis = diagnose::diagnose(all);
    ASSERT_EQ(diagnosis.unready.size(), 1U);
    const auto &comm = diagnosis.unready[0];
    EXPECT_EQ(comm.absent, std::vector<std::int32_t>{3});
    EXPECT_EQ(comm.awaited, std::vector<std::int32_t>{3});
    ASSERT_EQ(comm.causes.size(), 1U);
    EXPECT_EQ(comm.causes[0].kind, Kind::Missing);
    EXPECT_EQ(comm.causes[0].rank, 3);
}

TEST(Unready, RankOfAnEarlierCommunicatorIsNamed) {
    std::vector<Inspection> all{one_rank(0, 2, 5, {}), one_rank(1, 2, 5, {})};
    all[0].processes[0].unready = {unready(0, 2, Phase::Root, 1)};
    const auto diagnosis = diagnose::diagnose(all);
    ASSERT_EQ(diagnosis.unready.size(), 1U);
    ASSERT_EQ(diagnosis.unready[0].causes.size(), 1U);
    const auto &cause = diagnosis.unready[0].causes[0];
    EXPECT_EQ(cause.kind, Kind::Application);
    EXPECT_NE(cause.sentence.find("probably pid 101 on node1"), std::string::npos)
        << cause.sentence;
}

TEST(Unready, SplitNamesTheRankOfTheParent) {
    std::vector<Inspection> all;
    for (std::int32_t rank = 0; rank < 3; ++rank) {
        all.push_back(one_rank(rank, 3, 5, {}));
        if (rank == 2)
            continue;
        inspect::UnreadyComm comm;
        comm.address = 0xd00d;
        comm.phase = Phase::Parent;
        comm.parent = 0xc0de;
        comm.parent_hash = all.back().processes[0].communicators[0].hash;
        all.back().processes[0].unready = {comm};
    }
    const auto diagnosis = diagnose::diagnose(all);
    ASSERT_EQ(diagnosis.unready.size(), 1U);
    ASSERT_EQ(diagnosis.unready[0].causes.size(), 1U) << diagnose::render_text(diagnosis);
    EXPECT_EQ(diagnosis.unready[0].causes[0].rank, 2);
}

TEST(Unready, RankThatHasComeAndAnswersNoneIsTheCause) {
    auto last = unready(1, 2, Phase::Transports, 0);
    last.awaits.clear();
    const std::vector<Inspection> all{only_unready(unready(0, 2, Phase::Exchange, 1)),
                                      only_unready(last)};
    const auto diagnosis = diagnose::diagnose(all);
    ASSERT_EQ(diagnosis.unready.at(0).causes.size(), 1U);
    EXPECT_EQ(diagnosis.unready[0].causes[0].rank, 1);
}

TEST(Unready, SurvivesJson) {
    auto before = only_unready(unready(0, 4, Phase::Ring, 3));
    before.processes[0].roots = {{17, 4, 2}};
    before.processes[0].calls = {{100, "ncclCommInitRank", {"bootstrapInit"}, 0xd00d}};
    const auto after = inspect::parse_inspection(inspect::render_json(before));
    ASSERT_TRUE(after);
    EXPECT_EQ(inspect::render_json(*after), inspect::render_json(before));
    const auto &process = after->processes.at(0);
    EXPECT_EQ(process.unready.at(0).awaits.at(0).rank, 3);
    EXPECT_EQ(process.roots.at(0).last_rank, 2);
    EXPECT_EQ(process.calls.at(0).comm, 0xd00dU);
}

TEST(Circles, AreShortestAndOverSeveralCommunicators) {
    EXPECT_TRUE(diagnose::find_circles({}).empty());
    EXPECT_TRUE(diagnose::find_circles({{0, 1, 0}, {1, 2, 1}}).empty());
    // Within one communicator.
    EXPECT_TRUE(diagnose::find_circles({{0, 1, 0}, {1, 0, 0}}).empty());
    const auto two = diagnose::find_circles({{0, 1, 0}, {1, 0, 1}, {5, 0, 0}});
    ASSERT_EQ(two.size(), 1U);
    EXPECT_EQ(two[0], (std::vector<WaitEdge>{{0, 1, 0}, {1, 0, 1}}));
    const auto three =
        diagnose::find_circles({{0, 1, 0}, {1, 2, 1}, {2, 0, 2}, {7, 8, 3}, {8, 7, 4}});
    ASSERT_EQ(three.size(), 2U);
    EXPECT_EQ(three[0].size(), 3U);
    EXPECT_EQ(three[1].size(), 2U);
}

constexpr inspect::Progress OUT{8, 0, 4, 4};

// Two communicators of two ranks; each rank has launched on another one first.
std::vector<Inspection> other_order() {
    std::vector<Inspection> all;
    for (std::int32_t rank = 0; rank < 2; ++rank) {
        const std::int32_t peer = 1 - rank;
        auto inspection = one_rank(rank, 2, rank == 0 ? 6 : 5, {});
        auto &process = inspection.processes[0];
        process.communicators.push_back(process.communicators[0]);
        process.communicators[1].address = 0xbeef;
        process.communicators[1].hash = SECOND;
        process.communicators[1].proxy_state = 0xdef0;
        process.communicators[1].launched = rank == 0 ? 5 : 6;
        process.proxies.push_back(process.proxies[0]);
        process.proxies[1].address = 0xdef0;
        process.proxies[rank == 0 ? 0 : 1].operations = {
            all_reduce({send_to(rank, peer, OUT), receive_from(rank, peer, {8, 0, 0, 0}, 0)})};
        all.push_back(std::move(inspection));
        inspect::judge(all.back());
    }
    return all;
}

TEST(Circles, OtherOrderOnTwoCommunicatorsIsOneCause) {
    const auto all = other_order();
    const auto diagnosis = diagnose::diagnose(all);
    ASSERT_EQ(diagnosis.circles.size(), 1U) << diagnose::render_text(diagnosis);
    EXPECT_EQ(diagnosis.circles[0].steps.size(), 2U);
    EXPECT_EQ(diagnosis.circles[0].orders.size(), 2U);
    for (const auto &comm : diagnosis.communicators)
        for (const auto &cause : comm.causes)
            EXPECT_EQ(cause.kind, Kind::Deadlock);
}

TEST(Circles, RankThatIsLateOnBothIsNone) {
    auto all = other_order();
    all[1].processes[0].proxies[1].operations.clear();
    all[1].processes[0].communicators[1].launched = 5;
    EXPECT_TRUE(diagnose::diagnose(all).circles.empty());
}

TEST(Waiting, ThreadInNcclIsNeverNotStuck) {
    std::vector<Inspection> all{one_rank(0, 2, 5, {}), one_rank(1, 2, 5, {})};
    EXPECT_FALSE(diagnose::diagnose(all).communicators.at(0).is_stuck);
    all[0].processes[0].calls = {{100, "ncclCommDestroy", {"commReclaim"}, 0xc0de}};
    const auto diagnosis = diagnose::diagnose(all);
    const auto &comm = diagnosis.communicators.at(0);
    EXPECT_TRUE(comm.is_stuck);
    ASSERT_EQ(comm.causes.size(), 1U);
    EXPECT_EQ(comm.causes[0].kind, Kind::Nccl);
    EXPECT_EQ(comm.causes[0].rank, 0);
    // A program that calls NCCL again and again is in it at any time.
    all[0].processes[0].communicators[0].has_launched = true;
    EXPECT_FALSE(diagnose::diagnose(all).communicators.at(0).is_stuck);
}

TEST(Waiting, EmptyPoolOfProxyOperationsIsNccls) {
    std::vector<Inspection> all{one_rank(0, 2, 5, {}), one_rank(1, 2, 5, {})};
    all[0].processes[0].calls = {{100, "ncclAllReduce", {"ncclProxySaveOp"}, 0xc0de}};
    all[0].processes[0].proxies[0].is_pool_empty = true;
    const auto diagnosis = diagnose::diagnose(all);
    ASSERT_EQ(diagnosis.communicators.at(0).causes.size(), 1U);
    EXPECT_NE(diagnosis.communicators[0].causes[0].sentence.find("pool of proxy operations"),
              std::string::npos);
}

TEST(Waiting, ThrottledRankThatMovesIsSlow) {
    std::vector<Inspection> all{one_rank(0, 2, 5, {}), one_rank(1, 2, 5, {})};
    all[1].processes[0].throttling = inspect::Throttling{"/job", 2, 90'000'000};
    const auto diagnosis = diagnose::diagnose(all);
    const auto &comm = diagnosis.communicators.at(0);
    EXPECT_FALSE(comm.is_stuck);
    ASSERT_EQ(comm.causes.size(), 1U);
    EXPECT_EQ(comm.causes[0].rank, 1);
    all[1].processes[0].throttling->throttled_ns = 1'000'000;
    EXPECT_TRUE(diagnose::diagnose(all).communicators.at(0).causes.empty());
}

} // namespace
} // namespace collwire::test
