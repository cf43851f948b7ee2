// SPDX-License-Identifier: Apache-2.0
// Ranks that lag where no wait is visible: inside a node.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "correlate/diagnose/diagnosis.h"
#include "correlate/diagnose/render.h"
#include "tests/support/inspection_builder.h"

namespace collwire::test {
namespace {

using diagnose::Kind;
using inspect::Inspection;

constexpr std::uint64_t OTHER = 0x99;
constexpr std::size_t OF_NODE = 0, SECOND = 1; // communicators of a process

// A process of one node, with nothing in flight over the network.
Inspection of_node(std::int32_t rank, std::int32_t n_ranks, std::uint64_t launched,
                   std::uint64_t in_second = 0) {
    auto inspection = one_rank(rank, n_ranks, launched, {});
    auto &process = inspection.processes[0];
    auto &comm = process.communicators[OF_NODE];
    comm.n_nodes = 1;
    comm.has_launched = false;
    if (in_second != 0) {
        process.communicators.push_back(comm);
        auto &other = process.communicators[SECOND];
        other.address = 0xbeef;
        other.hash = OTHER;
        other.launched = in_second;
    }
    return inspection;
}

// The node's inspection.
std::vector<Inspection> together(std::vector<Inspection> all) {
    std::vector<Inspection> node{all.front()};
    for (std::size_t i = 1; i < all.size(); ++i)
        node[0].processes.push_back(all[i].processes[0]);
    return node;
}

const diagnose::Communicator &find(const diagnose::Diagnosis &diagnosis, std::uint64_t hash) {
    return *std::ranges::find(diagnosis.communicators, hash, &diagnose::Communicator::hash);
}

const std::uint64_t FIRST = of_node(0, 1, 1).processes[0].communicators[OF_NODE].hash;

TEST(DiagnoseLaunches, RankThatLagsInsideANodeIsTheCause) {
    const std::vector<Inspection> apart{of_node(0, 3, 7), of_node(1, 3, 6), of_node(2, 3, 7)};
    EXPECT_FALSE(diagnose::diagnose(apart).communicators.at(0).is_stuck);
    const auto all = together(apart);
    const auto diagnosis = diagnose::diagnose(all);
    const auto &comm = diagnosis.communicators.at(0);
    EXPECT_TRUE(comm.is_stuck);
    ASSERT_EQ(comm.causes.size(), 1U) << diagnose::render_text(diagnosis);
    EXPECT_EQ(comm.causes[0].kind, Kind::Application);
    EXPECT_EQ(comm.causes[0].rank, 1);
    EXPECT_EQ(comm.causes[0].sentence,
              "rank 1 (node0, pid 101) has not launched the operation: it is 1 operation behind; "
              "2 ranks have launched it");
}

TEST(DiagnoseLaunches, LagOfAJobThatLaunchesIsNoWait) {
    auto all = together({of_node(0, 3, 7), of_node(1, 3, 6), of_node(2, 3, 7)});
    all[0].processes[1].communicators[OF_NODE].has_launched = true;
    EXPECT_FALSE(diagnose::diagnose(all).communicators.at(0).is_stuck);
    all[0].processes[1].communicators[OF_NODE].has_launched.reset(); // not read
    EXPECT_FALSE(diagnose::diagnose(all).communicators.at(0).is_stuck);
}

TEST(DiagnoseLaunches, RankThatIsAheadElsewhereIsHeldUpThere) {
    // Rank 1 lags in the first one since it waits in the second for rank 2.
    const auto all = together({of_node(0, 3, 7, 4), of_node(1, 3, 6, 4), of_node(2, 3, 6, 3)});
    const auto diagnosis = diagnose::diagnose(all);
    for (const std::uint64_t hash : {FIRST, OTHER}) {
        const auto &comm = find(diagnosis, hash);
        ASSERT_EQ(comm.causes.size(), 1U) << diagnose::render_text(diagnosis);
        EXPECT_EQ(comm.causes[0].rank, 2);
    }
}

TEST(DiagnoseLaunches, RankThatWaitsForTheNetworkIsNotTheCause) {
    auto all = together({of_node(0, 2, 7), of_node(1, 2, 6)});
    auto &process = all[0].processes[1];
    process.communicators.push_back(process.communicators[OF_NODE]);
    process.communicators[SECOND].address = 0xbeef;
    process.communicators[SECOND].hash = OTHER;
    process.communicators[SECOND].proxy_state = 0xdef0;
    process.proxies.push_back(process.proxies[0]);
    process.proxies[1].address = 0xdef0;
    process.proxies[1].operations = {all_reduce({receive_from(1, 0, {8, 0, 0, 0}, 0)})};
    inspect::judge(all[0]);
    const auto diagnosis = diagnose::diagnose(all);
    EXPECT_TRUE(find(diagnosis, OTHER).is_stuck);
    EXPECT_TRUE(find(diagnosis, FIRST).causes.empty()) << diagnose::render_text(diagnosis);
}

TEST(DiagnoseLaunches, OtherOrderInsideANodeIsACircle) {
    const auto all = together({of_node(0, 2, 7, 3), of_node(1, 2, 6, 4)});
    const auto diagnosis = diagnose::diagnose(all);
    ASSERT_EQ(diagnosis.circles.size(), 1U) << diagnose::render_text(diagnosis);
    for (const auto &comm : diagnosis.communicators) {
        ASSERT_EQ(comm.causes.size(), 1U);
        EXPECT_EQ(comm.causes[0].kind, Kind::Deadlock);
    }
}

TEST(DiagnoseLaunches, RankWithoutAProcessOnTheNodeIsMissing) {
    auto all = together({of_node(0, 3, 7), of_node(2, 3, 6)});
    auto diagnosis = diagnose::diagnose(all);
    ASSERT_EQ(diagnosis.communicators.at(0).causes.size(), 1U);
    EXPECT_EQ(diagnosis.communicators[0].causes[0].kind, Kind::Missing);
    EXPECT_EQ(diagnosis.communicators[0].causes[0].rank, 1);
    for (inspect::Process &process : all[0].processes)
        process.communicators[OF_NODE].n_nodes = 2; // its node was not inspected
    all[0].processes[1].communicators[OF_NODE].launched = 7;
    EXPECT_FALSE(diagnose::diagnose(all).communicators.at(0).is_stuck);
}

// NVLS registers buffers of all ranks of a node, before it launches.
void put_in_call(inspect::Process &process) {
    process.calls = {{process.pid, "ncclAllReduce", {"groupLaunch"}, 0xc0de}};
}

TEST(DiagnoseLaunches, RankThatHasNotCalledIsTheCauseOfThoseInNccl) {
    auto all = together({of_node(0, 3, 7), of_node(1, 3, 7), of_node(2, 3, 7)});
    put_in_call(all[0].processes[0]);
    put_in_call(all[0].processes[2]);
    const auto diagnosis = diagnose::diagnose(all);
    const auto &comm = diagnosis.communicators.at(0);
    ASSERT_EQ(comm.causes.size(), 1U) << diagnose::render_text(diagnosis);
    EXPECT_EQ(comm.causes[0].kind, Kind::Application);
    EXPECT_EQ(comm.causes[0].sentence,
              "rank 1 (node0, pid 101) has not called ncclAllReduce: ranks 0, 2 wait in it");
    auto without = all;
    without[0].processes.erase(without[0].processes.begin() + 1);
    const auto killed = diagnose::diagnose(without);
    ASSERT_EQ(killed.communicators.at(0).causes.size(), 1U) << diagnose::render_text(killed);
    EXPECT_EQ(killed.communicators[0].causes[0].kind, Kind::Missing);
    EXPECT_EQ(killed.communicators[0].causes[0].rank, 1);
    // Most are outside: whether the one waits for them is not known.
    all[0].processes[2].calls.clear();
    const auto one = diagnose::diagnose(all);
    ASSERT_EQ(one.communicators.at(0).causes.size(), 1U);
    EXPECT_EQ(one.communicators[0].causes[0].kind, Kind::Nccl);
    EXPECT_EQ(one.communicators[0].causes[0].rank, 0);
}

TEST(DiagnoseLaunches, RankInNcclIsNotTheCauseOfItsPeersWait) {
    // Rank 3, of another node, waits for rank 0, which waits in NCCL for rank 1.
    auto all = together({of_node(0, 4, 6), of_node(1, 4, 6), of_node(2, 4, 6)});
    put_in_call(all[0].processes[0]);
    put_in_call(all[0].processes[2]);
    all.push_back(one_rank(3, 4, 7, {all_reduce({receive_from(3, 0, {8, 0, 0, 0}, 0)})}));
    const auto diagnosis = diagnose::diagnose(all);
    const auto &comm = diagnosis.communicators.at(0);
    ASSERT_EQ(comm.causes.size(), 1U) << diagnose::render_text(diagnosis);
    EXPECT_EQ(comm.causes[0].kind, Kind::Application);
    EXPECT_EQ(comm.causes[0].rank, 1);
    put_in_call(all[0].processes[1]); // all of the node are in it
    const auto in_nccl = diagnose::diagnose(all);
    ASSERT_EQ(in_nccl.communicators.at(0).causes.size(), 1U);
    EXPECT_EQ(in_nccl.communicators[0].causes[0].kind, Kind::Nccl);
    EXPECT_EQ(in_nccl.communicators[0].causes[0].rank, 0);
}

// Ranks 0 and 1 of a node, and 2 and 3 of another. Rank 1 has not launched.
std::vector<Inspection> two_nodes(const inspect::Operation &of_0, const inspect::Operation &of_2) {
    std::vector<Inspection> all{one_rank(0, 4, 7, {of_0}), one_rank(1, 4, 6, {}),
                                one_rank(2, 4, 7, {of_2}), one_rank(3, 4, 7, {})};
    for (std::int32_t rank = 0; rank < 4; ++rank) {
        auto &comm = all[static_cast<std::size_t>(rank)].processes[0].communicators[OF_NODE];
        comm.n_nodes = comm.local_ranks = 2;
        comm.node = rank / 2;
    }
    return all;
}

// Ready for the kernel, which does not take it.
inspect::Operation arrived(std::int32_t rank, std::int32_t peer) {
    return all_reduce({receive_from(rank, peer, {8, 8, 8, 4}, 4)});
}

TEST(DiagnoseLaunches, KernelThatWaitsForARankOfItsNodeIsNotTheCause) {
    for (const char *const algorithm : {"NVLS_TREE", "p2p"}) {
        auto of_0 = arrived(0, 2);
        of_0.algorithm = algorithm;
        of_0.is_p2p = of_0.algorithm == "p2p";
        const auto all = two_nodes(of_0, all_reduce({receive_from(2, 0, {8, 0, 0, 0}, 0)}));
        const auto diagnosis = diagnose::diagnose(all);
        const auto &comm = diagnosis.communicators.at(0);
        ASSERT_EQ(comm.causes.size(), 1U) << diagnose::render_text(diagnosis);
        EXPECT_EQ(comm.causes[0].kind, Kind::Application);
        EXPECT_EQ(comm.causes[0].rank, 1);
    }
}

TEST(DiagnoseLaunches, RankThatNoProxyWaitsForIsTheCauseIfAllOthersWaitForEachOther) {
    const auto all = two_nodes(all_reduce({receive_from(0, 2, {8, 0, 0, 0}, 0)}),
                               all_reduce({receive_from(2, 0, {8, 0, 0, 0}, 0)}));
    const auto diagnosis = diagnose::diagnose(all);
    const auto &comm = diagnosis.communicators.at(0);
    ASSERT_EQ(comm.causes.size(), 1U) << diagnose::render_text(diagnosis);
    EXPECT_EQ(comm.causes[0].kind, Kind::Application);
    EXPECT_EQ(comm.causes[0].sentence,
              "rank 1 (node1, pid 101) has not launched the operation: it is 1 operation behind; "
              "ranks 0, 2 wait for it");
}

TEST(DiagnoseLaunches, StoppedRankHoldsUpNoCommunicatorOfItsOwn) {
    auto all = together({of_node(0, 2, 7, 4), of_node(1, 2, 7)});
    auto &process = all[0].processes[0];
    process.communicators[SECOND].n_ranks = 1;
    process.threads[0].state = 'T';
    const auto diagnosis = diagnose::diagnose(all);
    EXPECT_EQ(find(diagnosis, FIRST).causes.size(), 1U) << diagnose::render_text(diagnosis);
    EXPECT_FALSE(find(diagnosis, OTHER).is_stuck);
}

TEST(DiagnoseLaunches, OneProcessBehindSeveralCommunicatorsIsNamedFirst) {
    const auto all = together({of_node(0, 3, 7, 4), of_node(1, 3, 6, 3), of_node(2, 3, 7, 4)});
    const std::string text = diagnose::render_text(diagnose::diagnose(all));
    EXPECT_NE(text.find("\none process is a cause in 2 communicators\n"
                        "  -> APPLICATION: node0, pid 101: rank 1 of dp (3 ranks) x 2\n"),
              std::string::npos)
        << text;
}

TEST(DiagnoseLaunches, ManyCommunicatorsWithoutAWaitTakeFewLines) {
    auto all = std::vector<Inspection>{of_node(0, 2, 7), of_node(1, 2, 7)};
    for (Inspection &inspection : all)
        for (std::uint64_t i = 0; i < 5; ++i) {
            auto &comms = inspection.processes[0].communicators;
            comms.push_back(comms[OF_NODE]);
            comms.back().hash = OTHER + i;
            comms.back().name = i < 4 ? "tp" : "";
        }
    const std::string text = diagnose::render_text(diagnose::diagnose(all));
    EXPECT_NE(text.find("6 communicators show no wait, and all their ranks were inspected:\n"
                        "  dp (2 ranks), tp (2 ranks) x 4, without a name (2 ranks)\n"),
              std::string::npos)
        << text;
}

} // namespace
} // namespace collwire::test
