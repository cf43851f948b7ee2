// SPDX-License-Identifier: Apache-2.0
#include "correlate/stall/judge.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <utility>

#include "correlate/verdict/render.h"

namespace collwire::stall {
namespace {

using verdict::Code;
using verdict::Confidence;
using verdict::Verdict;

constexpr std::uint64_t S = 1'000'000'000;
// Of the first operation; each of the others begins a second later.
constexpr std::uint64_t BEGIN_NS = 1000 * S;

Communicator comm_of(const std::string &name, std::int32_t n_ranks, std::size_t n_operations) {
    Communicator comm;
    comm.hash = std::hash<std::string>()(name) | 1U;
    comm.name = name;
    comm.n_ranks = n_ranks;
    comm.is_comparable = comm.has_all_launches = true;
    for (std::size_t i = 0; i < n_operations; ++i)
        comm.operations.push_back(
            {"AllReduce of 4 B (seq " + std::to_string(i) + ")", BEGIN_NS + i * S, false, {}});
    return comm;
}

// A rank on the host and with the pid of its process, that called and launched operations up to
// `last`, all done, and is recorded for 100 s.
Rank rank_of(std::int32_t rank, std::size_t last, std::uint32_t process) {
    Rank one;
    one.rank = rank;
    one.host = "node" + std::to_string(process);
    one.pid = 100 + process;
    one.until_ns = one.whole_until_ns = BEGIN_NS + 100 * S;
    one.called = one.launched = last;
    one.called_ns = BEGIN_NS + last * S;
    one.longest_pause_ns = S;
    one.is_done = true;
    return one;
}
Rank rank_of(std::int32_t rank, std::size_t last) {
    return rank_of(rank, last, static_cast<std::uint32_t>(rank));
}

void hold(Rank &rank, std::size_t operation) {
    rank.in_flight = operation;
    rank.in_flight_seen_ns = rank.until_ns - S;
    rank.is_done = false;
}

std::vector<std::pair<Code, std::int32_t>> found(const Standings &job) {
    std::vector<std::pair<Code, std::int32_t>> all;
    for (const Verdict &verdict : judge(job))
        if (verdict.severity == verdict::Severity::Failure)
            all.emplace_back(verdict.code, verdict.subject.rank);
    return all;
}
using Found = std::vector<std::pair<Code, std::int32_t>>;

Standings job_with_late_rank() {
    Standings job;
    job.communicators.push_back(comm_of("dp", 4, 6));
    for (std::int32_t rank = 0; rank < 4; ++rank) {
        job.communicators[0].ranks.push_back(rank_of(rank, rank == 2 ? 3 : 4));
        if (rank != 2)
            hold(job.communicators[0].ranks.back(), 4);
    }
    return job;
}

TEST(Stall, NamesTheRankThatHasNotCalled) {
    const std::vector<Verdict> verdicts = judge(job_with_late_rank());
    ASSERT_EQ(verdicts.size(), 1U);
    EXPECT_EQ(verdicts[0].code, Code::RankNotCalled);
    EXPECT_EQ(verdicts[0].confidence, Confidence::Certain);
    EXPECT_EQ(verdicts[0].subject.rank, 2);
    EXPECT_EQ(verdicts[0].subject.host, "node2");
    EXPECT_EQ(verdicts[0].sentence,
              "rank 2 (node2, pid 102) has not called AllReduce of 4 B (seq 4): "
              "ranks 0, 1, 3 wait for it, for 1 min 36 s");
}

TEST(Stall, SaysThatTheNetworkIsInnocentOnlyIfItWasWatched) {
    Standings job = job_with_late_rank();
    job.network.is_watched = true;
    EXPECT_EQ(judge(job).back().code, Code::NetworkInnocent);
    job.network.against.emplace_back("1 carrier_down");
    EXPECT_EQ(judge(job).back().code, Code::RankNotCalled);
    EXPECT_EQ(judge(job).back().evidence.back(), "network: 1 carrier_down");
}

TEST(Stall, IsOnlyProbableForARankThatPausesAsLongInGeneral) {
    Standings job = job_with_late_rank();
    job.communicators[0].ranks[2].longest_pause_ns = 90 * S;
    EXPECT_EQ(judge(job)[0].confidence, Confidence::Probable);
}

TEST(Stall, DoesNotTakeARankForLateThatIsAboutToCall) {
    Standings job = job_with_late_rank();
    for (Rank &rank : job.communicators[0].ranks) {
        rank.until_ns = rank.called_ns + S / 2;
        rank.in_flight.reset();
    }
    EXPECT_TRUE(judge(job).empty());
}

// One rank went on; the others still have its operation in flight, and are not late.
TEST(Stall, DoesNotNameARankThatIsInAnOperation) {
    Standings job;
    job.communicators.push_back(comm_of("dp", 3, 6));
    for (std::int32_t rank = 0; rank < 3; ++rank) {
        job.communicators[0].ranks.push_back(rank_of(rank, rank == 1 ? 4 : 3));
        if (rank != 1)
            hold(job.communicators[0].ranks.back(), 3);
    }
    EXPECT_EQ(found(job), (Found{{Code::TransferStalled, -1}}));
}

TEST(Stall, NamesARankThatCalledAndDidNotLaunch) {
    Standings job = job_with_late_rank();
    job.communicators[0].ranks[2].called = 4;
    job.communicators[0].ranks[2].launched = 3;
    EXPECT_EQ(found(job), (Found{{Code::RankNotLaunched, 2}}));
    job.communicators[0].has_all_launches = false;
    EXPECT_EQ(found(job), (Found{{Code::TransferStalled, -1}}));
}

// Rank 1 of dp is late because it waits in tp for rank 0 of it, another process.
TEST(Stall, FollowsAWaitIntoAnotherCommunicator) {
    Standings job;
    job.communicators.push_back(comm_of("dp", 2, 6));
    job.communicators[0].ranks = {rank_of(0, 4, 0), rank_of(1, 3, 1)};
    job.communicators.push_back(comm_of("tp", 2, 6));
    job.communicators[1].ranks = {rank_of(0, 3, 2), rank_of(1, 4, 1)};
    EXPECT_EQ(found(job), (Found{{Code::RankNotCalled, 0}}));
    EXPECT_EQ(judge(job)[0].subject.communicator_name, "tp");
}

TEST(Stall, DoesNotNameARankWhoseCaptureEndsEarlier) {
    Standings job = job_with_late_rank();
    job.communicators[0].ranks[2].whole_until_ns = BEGIN_NS + 4 * S;
    EXPECT_EQ(found(job), (Found{{Code::RankWithoutCapture, 2}}));
    job.communicators[0].ranks[3].called = job.communicators[0].ranks[3].launched = 3;
    job.communicators[0].ranks[3].in_flight.reset();
    job.communicators[0].ranks[3].is_done = true;
    EXPECT_EQ(found(job), (Found{{Code::RankNotCalled, 3}}));
}

// Others call the next operation as it dies, and have exited a second or two later.
TEST(Stall, ARankWhoseProcessEndedIsTheCause) {
    Standings job = job_with_late_rank();
    Rank &ended = job.communicators[0].ranks[2];
    ended.until_ns = ended.whole_until_ns = BEGIN_NS + 4 * S;
    ended.exited_ns = BEGIN_NS + 5 * S;
    EXPECT_EQ(found(job), (Found{{Code::RankExited, 2}}));
    // Calls of it are missing: it may have called.
    ended.whole_until_ns = BEGIN_NS + 3 * S;
    EXPECT_EQ(found(job), (Found{{Code::RankWithoutCapture, 2}}));
}

TEST(Stall, IsOneVerdictForAProcessThatIsLateTwice) {
    Standings job = job_with_late_rank();
    job.communicators.push_back(comm_of("tp", 2, 6));
    job.communicators[1].ranks = {rank_of(0, 4, 7), rank_of(1, 3, 2)};
    const std::vector<Verdict> verdicts = judge(job);
    ASSERT_EQ(verdicts.size(), 1U);
    EXPECT_EQ(verdicts[0].subject.communicator_name, "dp");
    EXPECT_EQ(verdicts[0].evidence.back(),
              "also in tp: rank 1 (node2, pid 102) has not called AllReduce of 4 B (seq 4): rank 0 "
              "waits for it, for 1 min 36 s");
}

TEST(Stall, FindsACircle) {
    Standings job;
    job.communicators.push_back(comm_of("a", 2, 6));
    job.communicators[0].ranks = {rank_of(0, 4, 0), rank_of(1, 3, 1)};
    job.communicators.push_back(comm_of("b", 2, 6));
    job.communicators[1].ranks = {rank_of(0, 3, 0), rank_of(1, 4, 1)};
    EXPECT_EQ(found(job), (Found{{Code::WaitCircle, -1}}));
}

TEST(Stall, NamesTheOddOneOfDifferentCalls) {
    Standings job = job_with_late_rank();
    Operation &operation = job.communicators[0].operations[4];
    operation.differs = true;
    operation.variants = {{"AllReduce", {0, 1, 3}}, {"Broadcast", {2}}};
    EXPECT_EQ(found(job), (Found{{Code::CallsDiffer, 2}}));
    operation.variants = {{"AllReduce", {0, 1}}, {"Broadcast", {2, 3}}};
    EXPECT_EQ(found(job), (Found{{Code::CallsDiffer, -1}}));
}

TEST(Stall, AnExitIsTheCauseIfNothingWaitedBefore) {
    Standings job = job_with_late_rank();
    FirstError error;
    error.rank = 3;
    error.is_exit = true;
    error.waiting = {0, 1};
    error.time_ns = job.communicators[0].operations[4].begin_ns;
    job.communicators[0].error = error;
    EXPECT_EQ(found(job), (Found{{Code::RankExited, 3}}));
    // The job was killed after it had hung.
    job.communicators[0].error->time_ns += 50 * S;
    EXPECT_EQ(found(job), (Found{{Code::RankNotCalled, 2}}));
}

TEST(Stall, NamesRanksWithoutACapture) {
    Standings job = job_with_late_rank();
    Communicator &comm = job.communicators[0];
    comm.ranks.erase(comm.ranks.begin() + 2);
    comm.missing = {2};
    const std::vector<Verdict> verdicts = judge(job);
    ASSERT_EQ(verdicts.size(), 1U);
    EXPECT_EQ(verdicts[0].code, Code::RankWithoutCapture);
    EXPECT_EQ(verdicts[0].confidence, Confidence::Probable);
    EXPECT_EQ(verdicts[0].subject.rank, 2);
}

TEST(Stall, NamesTheOtherEndOfAnOpenSend) {
    Standings job;
    job.communicators.push_back(comm_of("pp", 2, 0));
    job.communicators[0].ranks = {rank_of(0, 0), rank_of(1, 0)};
    for (Rank &rank : job.communicators[0].ranks)
        rank.called = rank.launched = std::nullopt;
    job.communicators[0].open_pairs.push_back({0, 1, "Recv of 4 B from rank 0", BEGIN_NS});
    EXPECT_EQ(found(job), (Found{{Code::RankNotCalled, 1}}));
}

TEST(Stall, ComparesNoRanksWhoseCallsCountDifferently) {
    Standings job = job_with_late_rank();
    job.communicators[0].is_comparable = false;
    EXPECT_EQ(found(job), (Found{{Code::RanksNotComparable, -1}}));
}

TEST(Stall, FindsNothingWhereAllIsDone) {
    Standings job;
    job.communicators.push_back(comm_of("dp", 2, 6));
    job.communicators[0].ranks = {rank_of(0, 4), rank_of(1, 4)};
    job.communicators[0].error = FirstError{0, true, BEGIN_NS + 100 * S, {}, {}};
    EXPECT_TRUE(judge(job).empty());
}

// Of communicators without a name the guess is printed, with its mark.
TEST(Stall, VerdictsHaveGuessedRoles) {
    Standings job;
    for (const auto &[role, hash] : {std::pair{"dp", 0x11U}, std::pair{"tp", 0x22U}}) {
        job.communicators.push_back(comm_of("", 2, 6));
        job.communicators.back().hash = hash;
        job.communicators.back().guessed_role = role;
    }
    job.communicators[0].ranks = {rank_of(0, 4, 7), rank_of(1, 3, 2)};
    job.communicators[1].ranks = {rank_of(0, 4, 8), rank_of(1, 3, 2)};
    std::vector<Verdict> verdicts = judge(job);
    ASSERT_EQ(verdicts.size(), 1U);
    EXPECT_EQ(verdicts[0].subject.guessed_role, "dp");
    EXPECT_EQ(verdicts[0].evidence.back().find("also in 0x0000000000000022 (tp?): "), 0U);
    EXPECT_EQ(verdict::render_text(verdicts).find(
                  "\n-> rank_not_called in 0x0000000000000011 (dp?): rank 1 "),
              0U);
    EXPECT_EQ(verdict::to_json(verdicts)[0]["communicator_guessed_role"], "dp");
    EXPECT_TRUE(verdict::to_json(verdicts)[0]["communicator_name"].is_null());
    // Each waits for the other one.
    job.communicators[0].ranks = {rank_of(0, 4, 0), rank_of(1, 3, 1)};
    job.communicators[1].ranks = {rank_of(0, 3, 0), rank_of(1, 4, 1)};
    verdicts = judge(job);
    ASSERT_EQ(verdicts.size(), 1U);
    EXPECT_EQ(verdicts[0].evidence[0],
              "rank 0 (node0, pid 100) waits in 0x0000000000000011 (dp?, 2 ranks) for rank 1");
    EXPECT_TRUE(verdict::to_json(verdicts)[0]["communicator_guessed_role"].is_null());
}

TEST(Verdict, TextShowsNamesOfOthersEscaped) {
    Verdict verdict;
    verdict.subject.communicator = 1;
    verdict.subject.communicator_name = "a\x1b[2J";
    EXPECT_EQ(verdict::render_text({verdict}).find('\x1b'), std::string::npos);
}

} // namespace
} // namespace collwire::stall
