// SPDX-License-Identifier: Apache-2.0
// Who is late and why, over the inspections of all ranks.
#include <algorithm>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "correlate/diagnose/diagnosis.h"
#include "correlate/diagnose/render.h"
#include "tests/support/inspection_builder.h"

namespace collwire::test {
namespace {

using diagnose::Kind;
using inspect::Inspection;
using inspect::Progress;
using inspect::Slot;

constexpr std::int32_t RANKS = 4;
constexpr Progress OUT{16, 0, 8, 8};

std::int32_t next_of(std::int32_t rank) {
    return (rank + 1) % RANKS;
}
std::int32_t previous_of(std::int32_t rank) {
    return (rank + RANKS - 1) % RANKS;
}

// In a ring in which nothing arrives any more.
Inspection starved(std::int32_t rank) {
    return one_rank(rank, RANKS, 17,
                    {all_reduce({send_to(rank, next_of(rank), OUT),
                                 receive_from(rank, previous_of(rank), {16, 8, 8, 8}, 8)})});
}

std::vector<Inspection> starved_ring() {
    std::vector<Inspection> all;
    all.reserve(RANKS);
    for (std::int32_t rank = 0; rank < RANKS; ++rank)
        all.push_back(starved(rank));
    return all;
}

const diagnose::Cause &only_cause(const diagnose::Diagnosis &diagnosis) {
    EXPECT_EQ(diagnosis.communicators.size(), 1U);
    EXPECT_EQ(diagnosis.communicators.at(0).causes.size(), 1U) << diagnose::render_text(diagnosis);
    return diagnosis.communicators.at(0).causes.at(0);
}

TEST(Diagnose, RankThatNeverCallsIsAnApplicationCause) {
    auto all = starved_ring();
    all[2] = one_rank(2, RANKS, 16, {});
    const auto diagnosis = diagnose::diagnose(all);
    const auto &cause = only_cause(diagnosis);
    EXPECT_EQ(cause.kind, Kind::Application);
    EXPECT_EQ(cause.rank, 2);
    ASSERT_EQ(diagnosis.communicators[0].behind.size(), 1U);
    EXPECT_EQ(diagnosis.communicators[0].behind[0].rank, 2);
    EXPECT_EQ(diagnosis.communicators[0].behind[0].by, 1U);
    EXPECT_EQ(cause.sentence, "rank 2 (node2, pid 102) has not launched the operation: it is 1 "
                              "operation behind; rank 3 waits for it");
}

TEST(Diagnose, NamesContainerPodJobAndBothPids) {
    auto all = starved_ring();
    all[2] = one_rank(2, RANKS, 16, {});
    auto &process = all[2].processes.at(0);
    process.namespace_pid = 7;
    process.slurm_job = "47";
    process.slurm_step = "0";
    process.pod_uid = "uid";
    process.container_id = "0123456789ab" + std::string(52, 'c');
    const auto diagnosis = diagnose::diagnose(all);
    const auto &cause = only_cause(diagnosis);
    EXPECT_TRUE(cause.sentence.starts_with(
        "rank 2 (node2, pid 102, pod uid, container 0123456789ab) has not launched"))
        << cause.sentence;
    EXPECT_EQ(cause.evidence.back(), "it is in Slurm job 47.0, pod uid, container 0123456789ab, "
                                     "where its pid is 7");
    const auto json = nlohmann::json::parse(diagnose::render_json(diagnosis, "0.0.0"));
    const auto &comm = json.at("communicators").at(0);
    for (const auto &of : {comm.at("causes").at(0), comm.at("ranks").at(2)}) {
        EXPECT_EQ(of.at("namespace_pid"), 7);
        EXPECT_EQ(of.at("slurm_job"), "47");
        EXPECT_EQ(of.at("slurm_step"), "0");
        EXPECT_EQ(of.at("pod_uid"), "uid");
        EXPECT_EQ(of.at("container_id"), process.container_id);
    }
    EXPECT_EQ(comm.at("ranks").at(0).at("container_id"), nullptr);
}

TEST(Diagnose, RankInDStateIsAHostCause) {
    auto all = starved_ring();
    all[2] = one_rank(2, RANKS, 16, {});
    all[2].processes[0].threads[0].state = 'D';
    all[2].processes[0].threads[0].stack = {"nfs_wait_bit_killable", "out_of_line_wait_on_bit"};
    const auto diagnosis = diagnose::diagnose(all);
    const auto &cause = only_cause(diagnosis);
    EXPECT_EQ(cause.kind, Kind::Host);
    EXPECT_NE(cause.evidence.at(0).find("D state"), std::string::npos);
    EXPECT_NE(cause.evidence.at(0).find("nfs_wait_bit_killable"), std::string::npos);
}

TEST(Diagnose, StoppedRankIsAHostCause) {
    auto all = starved_ring();
    all[2].processes[0].threads[0].state = 'T';
    const auto diagnosis = diagnose::diagnose(all);
    const auto &cause = only_cause(diagnosis);
    EXPECT_EQ(cause.kind, Kind::Host);
    EXPECT_EQ(cause.rank, 2);
}

// Before any other rank waits for it.
TEST(Diagnose, StoppedRankIsACauseWhileOthersMove) {
    auto all = starved_ring();
    all[0].processes[0].proxies[0].operations[0].transfers[0].first.done = 4;
    inspect::judge(all[0]);
    all[2] = one_rank(2, RANKS, 17, {});
    all[2].processes[0].threads[0].state = 'T';
    const auto diagnosis = diagnose::diagnose(all);
    EXPECT_TRUE(diagnosis.communicators.at(0).is_stuck);
    const auto &cause = only_cause(diagnosis);
    EXPECT_EQ(cause.kind, Kind::Host);
    EXPECT_EQ(cause.rank, 2);
}

TEST(Diagnose, KernelThatNeverFinishesIsAGpuCause) {
    auto all = starved_ring();
    all[2] = one_rank(2, RANKS, 17,
                      {all_reduce({send_to(2, 3, OUT), receive_from(2, 1, {16, 16, 16, 8}, 8)})});
    const auto diagnosis = diagnose::diagnose(all);
    const auto &cause = only_cause(diagnosis);
    EXPECT_EQ(cause.kind, Kind::Gpu);
    EXPECT_EQ(cause.rank, 2);
}

// Ranks 2 and 3 on one node: what goes from one to the other no proxy sees.
TEST(Diagnose, KernelThatWaitsWithinItsNode) {
    auto all = starved_ring();
    auto &comm =
        (all[2] = one_rank(2, RANKS, 17, {all_reduce({receive_from(2, 1, {16, 16, 16, 8}, 8)})}))
            .processes[0]
            .communicators[0];
    comm.local_ranks = 2;
    comm.rings = {{0, 1, 3}};
    EXPECT_EQ(diagnose::diagnose(all).communicators[0].causes.size(), 1U); // 3 waits for 2
    all[3] = one_rank(3, RANKS, 16, {});
    const auto diagnosis = diagnose::diagnose(all);
    const auto &cause = only_cause(diagnosis);
    EXPECT_EQ(cause.kind, Kind::Application);
    EXPECT_EQ(cause.rank, 3);
}

TEST(Diagnose, CutLinkIsANetworkCause) {
    auto all = starved_ring();
    all[1] = one_rank(1, RANKS, 17,
                      {all_reduce({send_to(1, 2, {16, 0, 12, 8}, Slot::Filled),
                                   receive_from(1, 0, {16, 8, 8, 8}, 8)})});
    const auto diagnosis = diagnose::diagnose(all);
    const auto &cause = only_cause(diagnosis);
    EXPECT_EQ(cause.kind, Kind::Network);
    EXPECT_EQ(cause.rank, 1);
    EXPECT_EQ(cause.peer, 2);
}

Inspection unacknowledged(std::int32_t rank) {
    return one_rank(rank, RANKS, 17,
                    {all_reduce({send_to(rank, next_of(rank), {16, 0, 12, 8}, Slot::Filled),
                                 receive_from(rank, previous_of(rank), {16, 8, 8, 8}, 8)})});
}

TEST(Diagnose, RankThatIsCutOffIsTheCause) {
    auto all = starved_ring();
    all[1] = unacknowledged(1);
    all[2] = unacknowledged(2);
    const auto diagnosis = diagnose::diagnose(all);
    const auto &cause = only_cause(diagnosis);
    EXPECT_EQ(cause.kind, Kind::Network);
    EXPECT_EQ(cause.rank, 2);
    EXPECT_FALSE(cause.peer);
    EXPECT_EQ(cause.sentence, "rank 2 (node2, pid 102) is cut off from ranks 1, 3");
    EXPECT_NE(cause.evidence.at(0).find("is not acknowledged"), std::string::npos);
}

// Two ranks on one host, each with a neighbour that it does not reach.
TEST(Diagnose, HostThatIsCutOffIsTheCause) {
    auto all = starved_ring();
    all[1] = unacknowledged(1);
    all[3] = unacknowledged(3);
    for (const std::size_t rank : {2U, 3U})
        all[rank].host = all[rank].boot_id = "double-node";
    const auto diagnosis = diagnose::diagnose(all);
    const auto &cause = only_cause(diagnosis);
    EXPECT_EQ(cause.kind, Kind::Network);
    EXPECT_EQ(cause.sentence, "host double-node is cut off from ranks 0, 1");
}

// Two pairs that have nothing in common.
TEST(Diagnose, CutLinksAreSeparateCauses) {
    auto all = starved_ring();
    all[0] = unacknowledged(0);
    all[2] = unacknowledged(2);
    const auto diagnosis = diagnose::diagnose(all);
    const auto &causes = diagnosis.communicators.at(0).causes;
    ASSERT_EQ(causes.size(), 2U);
    EXPECT_EQ(causes[0].rank, 0);
    EXPECT_EQ(causes[0].peer, 1);
    EXPECT_EQ(causes[1].rank, 2);
    EXPECT_EQ(causes[1].peer, 3);
}

// Over NET/IB the receiver writes into the sender's memory where there is room.
TEST(Diagnose, LostClearToSendIsANetworkCause) {
    auto all = starved_ring();
    auto send = send_to(1, 2, {16, 0, 8, 8}, Slot::Filled);
    send.has_credit = false;
    all[1] = one_rank(1, RANKS, 17, {all_reduce({send, receive_from(1, 0, {16, 8, 8, 8}, 8)})});
    ASSERT_EQ(all[1].processes[0].proxies[0].operations[0].transfers[0].wait,
              inspect::Wait::Credit);
    const auto diagnosis = diagnose::diagnose(all);
    const auto &cause = only_cause(diagnosis);
    EXPECT_EQ(cause.kind, Kind::Network);
    EXPECT_EQ(cause.rank, 2);
    EXPECT_EQ(cause.peer, 1);
    // Where there is none, the receiver is late.
    all[2] = one_rank(2, RANKS, 17,
                      {all_reduce({send_to(2, 3, OUT), receive_from(2, 1, {8, 8, 8, 8}, 8)})});
    const auto late = diagnose::diagnose(all);
    for (const auto &other : late.communicators.at(0).causes)
        EXPECT_NE(other.kind, Kind::Network);
}

TEST(Diagnose, RankWithoutAFileIsMissing) {
    auto all = starved_ring();
    all.erase(all.begin() + 2);
    const auto diagnosis = diagnose::diagnose(all);
    const auto &cause = only_cause(diagnosis);
    EXPECT_EQ(cause.kind, Kind::Missing);
    EXPECT_EQ(cause.rank, 2);
    EXPECT_EQ(diagnosis.communicators[0].missing, std::vector<std::int32_t>{2});
}

TEST(Diagnose, CollectiveOfAnotherSizeIsAMismatch) {
    auto all = starved_ring();
    for (auto &transfer : all[2].processes[0].proxies[0].operations[0].transfers)
        transfer.nsteps = 24;
    const auto diagnosis = diagnose::diagnose(all);
    const auto &causes = diagnosis.communicators.at(0).causes;
    ASSERT_FALSE(causes.empty());
    EXPECT_EQ(causes[0].kind, Kind::Mismatch);
    EXPECT_EQ(causes[0].rank, 2);
    EXPECT_NE(causes[0].sentence.find("24 steps"), std::string::npos) << causes[0].sentence;
    EXPECT_EQ(std::ranges::count(causes, Kind::Mismatch, &diagnose::Cause::kind), 1);
}

// The smaller one was over sooner: its rank is in the next one, in the middle of the others'.
TEST(Diagnose, CollectiveAfterOneOfAnotherSizeIsAMismatch) {
    auto all = starved_ring();
    for (auto &transfer : all[2].processes[0].proxies[0].operations[0].transfers) {
        transfer.nsteps = 4;
        transfer.base = 24;
    }
    const auto diagnosis = diagnose::diagnose(all);
    const auto &causes = diagnosis.communicators.at(0).causes;
    ASSERT_FALSE(causes.empty());
    EXPECT_EQ(causes[0].kind, Kind::Mismatch);
    EXPECT_EQ(causes[0].rank, 2);
}

// Or it is complete there, and nothing follows it.
TEST(Diagnose, CompletedCollectiveOfAnotherSizeIsAMismatch) {
    auto all = starved_ring();
    all[2] = one_rank(2, RANKS, 17, {});
    all[2].processes[0].proxies[0].idle = {{true, 2, 3, 0, 0, 24}, {false, 2, 1, 0, 0, 24}};
    const auto diagnosis = diagnose::diagnose(all);
    const auto &causes = diagnosis.communicators.at(0).causes;
    ASSERT_FALSE(causes.empty());
    EXPECT_EQ(causes[0].kind, Kind::Mismatch);
    EXPECT_EQ(causes[0].rank, 2);
    // As many as the others do, or none of it: that is no mismatch.
    for (const std::uint64_t steps : {0U, 48U}) {
        all[2].processes[0].proxies[0].idle = {{true, 2, 3, 0, 0, steps},
                                               {false, 2, 1, 0, 0, steps}};
        const auto other = diagnose::diagnose(all);
        EXPECT_EQ(other.communicators.at(0).causes.at(0).kind, Kind::Application);
    }
}

TEST(Diagnose, OperationsInOtherPlacesAreNotCompared) {
    auto all = starved_ring();
    for (auto &transfer : all[2].processes[0].proxies[0].operations[0].transfers) {
        transfer.nsteps = 24;
        transfer.base = 96;
    }
    const auto diagnosis = diagnose::diagnose(all);
    EXPECT_EQ(std::ranges::count(diagnosis.communicators.at(0).causes, Kind::Mismatch,
                                 &diagnose::Cause::kind),
              0);
}

TEST(Diagnose, JobThatMakesProgressIsNotStuck) {
    auto all = starved_ring();
    auto &transfer = all[0].processes[0].proxies[0].operations[0].transfers[0];
    transfer.first.done = 4;
    inspect::judge(all[0]);
    const auto diagnosis = diagnose::diagnose(all);
    EXPECT_FALSE(diagnosis.communicators.at(0).is_stuck);
    EXPECT_TRUE(diagnosis.communicators.at(0).causes.empty());
}

TEST(Diagnose, RankWithAnNcclErrorIsTheCause) {
    auto all = starved_ring();
    all[3].processes[0].communicators[0].async_result = "ncclRemoteError";
    const auto diagnosis = diagnose::diagnose(all);
    const auto &causes = diagnosis.communicators.at(0).causes;
    EXPECT_TRUE(std::ranges::any_of(
        causes, [](const auto &cause) { return cause.kind == Kind::Error && cause.rank == 3; }));
}

// NCCL passes it on only to callers that ask.
TEST(Diagnose, ErrorOfTheProxyIsTheRanks) {
    auto all = starved_ring();
    all[3].processes[0].proxies[0].async_result = "ncclRemoteError";
    const auto diagnosis = diagnose::diagnose(all);
    const auto &cause = only_cause(diagnosis);
    EXPECT_EQ(cause.kind, Kind::Error);
    EXPECT_EQ(cause.rank, 3);
    EXPECT_EQ(cause.sentence, "rank 3 (node3, pid 103): NCCL reports ncclRemoteError (its proxy)");
}

TEST(Diagnose, RankThatAbortsIsTheCause) {
    auto all = starved_ring();
    inspect::Communicator &comm = all[3].processes[0].communicators[0];
    comm.is_aborted = true;
    EXPECT_EQ(only_cause(diagnose::diagnose(all)).sentence,
              "rank 3 (node3, pid 103): the program has aborted the communicator");
    all[3].processes[0].calls.push_back({.tid = 103,
                                         .function = "ncclCommAbort",
                                         .inside = {"commDestroySync"},
                                         .comm = comm.address});
    const auto cause = only_cause(diagnose::diagnose(all));
    EXPECT_EQ(cause.kind, Kind::Error);
    EXPECT_EQ(cause.rank, 3);
    EXPECT_NE(cause.sentence.find("has not come back from ncclCommAbort"), std::string::npos);
    ASSERT_FALSE(cause.evidence.empty());
    EXPECT_NE(cause.evidence[0].find("commDestroySync"), std::string::npos) << cause.evidence[0];
}

TEST(Diagnose, MissingRankPrecedesTheErrorsOfOthers) {
    auto all = starved_ring();
    all.erase(all.begin() + 2);
    all[2].processes[0].communicators[0].async_result = "ncclRemoteError";
    const auto diagnosis = diagnose::diagnose(all);
    const auto &causes = diagnosis.communicators.at(0).causes;
    ASSERT_EQ(causes.size(), 2U);
    EXPECT_EQ(causes[0].kind, Kind::Missing);
    EXPECT_EQ(causes[0].rank, 2);
    EXPECT_EQ(causes[1].kind, Kind::Error);
    EXPECT_EQ(causes[1].rank, 3);
}

// One counter for all communicators that share a proxy.
TEST(Diagnose, SharedCountsAreNotCompared) {
    auto all = starved_ring();
    all[2] = one_rank(2, RANKS, 16, {});
    for (auto &inspection : all)
        inspection.processes[0].communicators[0].is_shared = true;
    EXPECT_EQ(diagnose::diagnose(all).communicators.at(0).behind.size(), 1U) << "own ones";
    for (auto &inspection : all)
        inspection.processes[0].communicators[0].launched_by_function.reset();
    const auto diagnosis = diagnose::diagnose(all);
    EXPECT_TRUE(diagnosis.communicators.at(0).behind.empty());
    EXPECT_EQ(only_cause(diagnosis).kind, Kind::Application);
}

TEST(Diagnose, RankClaimedByTwoProcessesIsAmbiguous) {
    auto all = starved_ring();
    all.push_back(starved(2));
    all.back().host = all.back().boot_id = "elsewhere";
    const auto diagnosis = diagnose::diagnose(all);
    EXPECT_TRUE(diagnosis.communicators.at(0).is_ambiguous);
    EXPECT_TRUE(diagnosis.communicators.at(0).behind.empty());
}

TEST(Diagnose, FileGivenTwiceCountsOnce) {
    auto all = starved_ring();
    all.push_back(starved(2));
    const auto diagnosis = diagnose::diagnose(all);
    EXPECT_FALSE(diagnosis.communicators.at(0).is_ambiguous);
    EXPECT_EQ(diagnosis.warnings.size(), 1U);
}

TEST(Diagnose, JsonSaysTheSame) {
    auto all = starved_ring();
    all[2] = one_rank(2, RANKS, 16, {});
    const auto json =
        nlohmann::json::parse(diagnose::render_json(diagnose::diagnose(all), "0.0.0"));
    const auto &comm = json.at("communicators").at(0);
    EXPECT_EQ(comm.at("hash"), "0x1122334455667788");
    EXPECT_EQ(comm.at("stuck"), true);
    EXPECT_EQ(comm.at("causes").at(0).at("kind"), "APPLICATION");
    EXPECT_EQ(comm.at("causes").at(0).at("pid"), 102);
    EXPECT_EQ(comm.at("ranks").size(), 4U);
}

// Inspections do not show what a communicator is for. Captures of the same job do.
TEST(Diagnose, HasTheRolesThatCapturesShow) {
    constexpr std::uint64_t HASH = 0x1122334455667788;
    auto all = starved_ring();
    for (Inspection &inspection : all)
        inspection.processes[0].communicators[0].name.clear();
    const auto json_of = [&](const std::vector<diagnose::CapturedRole> &roles) {
        return nlohmann::json::parse(
            diagnose::render_json(diagnose::diagnose(all, roles), "0.0.0"))["communicators"][0];
    };
    const auto diagnosis = diagnose::diagnose(all, {{HASH, RANKS, "tp"}, {HASH, 8, "dp"}});
    EXPECT_NE(diagnose::render_text(diagnosis).find("\n0x1122334455667788 (tp?, 4 ranks)  "),
              std::string::npos)
        << diagnose::render_text(diagnosis);
    EXPECT_EQ(json_of({{HASH, RANKS, "tp"}})["guessed_role"], "tp");
    EXPECT_TRUE(json_of({})["guessed_role"].is_null());
    // Two communicators of captures have this hash.
    EXPECT_TRUE(json_of({{HASH, RANKS, "tp"}, {HASH, RANKS, ""}})["guessed_role"].is_null());
    all[0].processes[0].communicators[0].name = "data0";
    EXPECT_TRUE(json_of({{HASH, RANKS, "tp"}})["guessed_role"].is_null());
    EXPECT_EQ(json_of({{HASH, RANKS, "tp"}})["name"], "data0");
}

} // namespace
} // namespace collwire::test
