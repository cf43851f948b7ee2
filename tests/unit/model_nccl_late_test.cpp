// SPDX-License-Identifier: Apache-2.0
// Recorders that start in the middle of a job, at different moments.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_launch_records.h"
#include "correlate/nccl/align_sequences.h"
#include "tests/support/model_of.h"
#include "tests/support/nccl_builder.h"

namespace collwire::nccl {
namespace {

using namespace collwire::test;

constexpr std::uint32_t MET = CW_NCCL_COMM_LAUNCHED | CW_NCCL_COMM_OUTSIDE;

// Ranks 0 and 1 make the same calls at times 10, 11, ... of which a recorder has those from some
// time on.
struct Job {
    struct Rank {
        double from = 0;
        double to = 40;
        bool created = false;
        bool counts = true; // NCCL does
        std::uint32_t version = 22809;
    };
    std::vector<std::uint64_t> counts;

    [[nodiscard]] model::Model record(const Rank &first, const Rank &second) const {
        std::vector<std::vector<std::byte>> captures;
        const Rank *ranks[2] = {&first, &second};
        for (int i = 0; i < 2; ++i) {
            const Rank &of = *ranks[i];
            NodeBuilder node({.hostname = "node" + std::to_string(i),
                              .session_id = static_cast<std::uint64_t>(i) + 1,
                              .start = of.from,
                              .flags = NCCL_NODE_FLAGS});
            node.usual(static_cast<std::uint8_t>(i + 1));
            std::uint64_t launched = 0;
            std::size_t next = 0;
            for (; next < counts.size() && 10.0 + static_cast<double>(next) < of.from; ++next)
                launched += counts[next] != 0 ? 1 : 0;
            NcclBuilder rank(node,
                             {.pid = 100U + static_cast<std::uint32_t>(i),
                              .rank = i,
                              .created = of.from,
                              .flags = of.created  ? CW_NCCL_COMM_CREATED | CW_NCCL_COMM_LAUNCHED
                                       : of.counts ? MET
                                                   : std::uint32_t{CW_NCCL_COMM_OUTSIDE},
                              .launched = launched,
                              .version = of.version});
            rank.comm();
            for (; next < counts.size() && 10.0 + static_cast<double>(next) < of.to; ++next) {
                const double time = 10.0 + static_cast<double>(next) + 0.003 * i;
                const CallOptions call{.count = counts[next]};
                rank.call(time, call);
                if (counts[next] == 0)
                    continue;
                ++launched;
                rank.launch(
                    time + 0.0001, 0, {call},
                    {.flags = of.counts ? std::uint8_t{CW_NCCL_LAUNCH_LAUNCHED} : std::uint8_t{0},
                     .launched = launched});
            }
            node.clock(40).end(40);
            captures.push_back(node.bytes());
        }
        return model_of(captures);
    }
};

// By (seq): how many ranks and which size.
std::map<std::uint64_t, std::pair<std::uint32_t, std::uint64_t>> by_seq(const model::Model &model) {
    std::map<std::uint64_t, std::pair<std::uint32_t, std::uint64_t>> result;
    for (const Operation &operation : model.nccl.collectives)
        result[operation.seq] = {operation.ranks, operation.count};
    return result;
}

const Instance &rank_of(const model::Model &model, std::int32_t rank) {
    for (const Instance &instance : model.nccl.instances)
        if (instance.record.rank == rank)
            return instance;
    ADD_FAILURE();
    return model.nccl.instances[0];
}

TEST(NcclLate, PlacedByNcclsOwnCount) {
    const Job job{{5, 5, 5, 5, 5, 5, 5, 5}};
    const model::Model model = job.record({.from = 9, .created = true}, {.from = 12.5});
    ASSERT_EQ(model.nccl.communicators.size(), 1U);
    const auto all = by_seq(model);
    ASSERT_EQ(all.size(), 8U);
    for (const auto &[seq, of] : all)
        EXPECT_EQ(of.first, seq < 3 ? 1U : 2U) << seq;
    EXPECT_EQ(rank_of(model, 1).seq_base, SeqBase::Launched);
    EXPECT_EQ(rank_of(model, 1).seq_of_first, 3U);
    for (const Operation &operation : model.nccl.collectives) {
        EXPECT_EQ(operation.has(OPERATION_PARTIAL), operation.seq < 3);
        EXPECT_EQ(operation.seq_base, operation.seq < 3 ? SeqBase::Creation : SeqBase::Launched);
    }
}

// Calls of size 0 are no business of NCCL's count, but they have a number.
TEST(NcclLate, CollectivesThatNcclDoesNotCountAreNumbered) {
    const Job job{{5, 0, 0, 6, 5, 0, 7, 8}};
    const model::Model model = job.record({.from = 9, .created = true}, {.from = 14.5});
    EXPECT_EQ(rank_of(model, 1).seq_of_first, 5U);
    const auto all = by_seq(model);
    ASSERT_EQ(all.size(), 8U);
    EXPECT_EQ(all.at(6), (std::pair<std::uint32_t, std::uint64_t>{2, 7}));
    EXPECT_EQ(all.at(5), (std::pair<std::uint32_t, std::uint64_t>{2, 0}));
}

TEST(NcclLate, NoRankRecordedTheCreation) {
    const Job job{{5, 5, 5, 5, 5, 5, 5, 5}};
    const model::Model model = job.record({.from = 11.5}, {.from = 14.5});
    const auto all = by_seq(model);
    ASSERT_EQ(all.size(), 6U);
    EXPECT_EQ(all.begin()->first, 2U);
    EXPECT_EQ(all.at(4).first, 1U);
    EXPECT_EQ(all.at(5).first, 2U);
    for (const Operation &operation : model.nccl.collectives)
        EXPECT_EQ(operation.seq_base, SeqBase::Launched);
}

// A group was open when the recorder came: what it had called is launched after what was seen.
TEST(NcclLate, CallsInFlightAtTheStartArePlaced) {
    const CallOptions unseen{.count = 3, .buffer = 9};
    const CallOptions seen{.count = 4};
    NodeBuilder early({.start = 9, .flags = NCCL_NODE_FLAGS});
    NcclBuilder first(early.usual(1), {.created = 9});
    first.comm().call(10, unseen).call(10.001, unseen).call(10.002, seen);
    first.launch(10.01, 0, {unseen, unseen, seen}, {.launched = 3}).call(11, seen);
    first.launch(11.1, 0, {seen}, {.launched = 4});
    NodeBuilder late(
        {.hostname = "node1", .session_id = 2, .start = 10.0015, .flags = NCCL_NODE_FLAGS});
    NcclBuilder second(late.usual(2),
                       {.pid = 200, .rank = 1, .created = 10.0016, .flags = MET, .launched = 0});
    second.comm().call(10.002, seen);
    second.launch(10.01, 0, {unseen, unseen, seen}, {.launched = 3}).call(11, seen);
    second.launch(11.1, 0, {seen}, {.launched = 4});
    early.clock(20).end();
    late.clock(20).end();
    const model::Model model = model_of({early.bytes(), late.bytes()});
    EXPECT_EQ(rank_of(model, 1).seq_of_first, 2U);
    EXPECT_EQ(by_seq(model).at(2).first, 2U);
    EXPECT_EQ(by_seq(model).at(3).first, 2U);
}

TEST(NcclLate, PlacedByTheSequenceWithoutCounts) {
    const Job job{{1, 2, 3, 4, 5, 6, 7, 8}};
    const model::Model model =
        job.record({.from = 9, .created = true, .counts = false}, {.from = 12.5, .counts = false});
    const auto all = by_seq(model);
    ASSERT_EQ(all.size(), 8U);
    EXPECT_EQ(all.at(3), (std::pair<std::uint32_t, std::uint64_t>{2, 4}));
    EXPECT_EQ(rank_of(model, 1).seq_base, SeqBase::Aligned);
    EXPECT_EQ(rank_of(model, 1).confidence, 1.0);
}

// All calls are alike; their times decide, and how surely.
// As many calls of both: the one that is found first has the numbers, and the other one's first
// call comes before its own.
TEST(NcclLate, ARankThatBeginsACallEarlierThanTheOtherIsPlaced) {
    const Job job{{1, 2, 3, 4, 5, 6, 7, 8}};
    for (const bool is_second_earlier : {false, true}) {
        const Job::Rank early{.from = 11.5, .to = 16.5, .counts = false};
        const Job::Rank late{.from = 12.5, .to = 17.5, .counts = false};
        const model::Model model =
            is_second_earlier ? job.record(late, early) : job.record(early, late);
        const auto all = by_seq(model);
        ASSERT_EQ(all.size(), 6U);
        EXPECT_EQ(all.at(0), (std::pair<std::uint32_t, std::uint64_t>{1, 3}));
        EXPECT_EQ(all.at(1), (std::pair<std::uint32_t, std::uint64_t>{2, 4}));
        EXPECT_EQ(all.at(5), (std::pair<std::uint32_t, std::uint64_t>{1, 8}));
        for (const Operation &operation : model.nccl.collectives)
            EXPECT_EQ(operation.seq_base, SeqBase::Aligned);
    }
}

TEST(NcclLate, PlacedByTime) {
    const Job job{std::vector<std::uint64_t>(20, 5)};
    const model::Model model =
        job.record({.from = 9, .created = true, .counts = false}, {.from = 12.5, .counts = false});
    EXPECT_EQ(rank_of(model, 1).seq_of_first, 3U);
    EXPECT_GT(rank_of(model, 1).confidence, 0.9);
    EXPECT_LT(rank_of(model, 1).confidence, 1.0);
}

// NCCL's own count of before 2.26 is of all communicators that share connections.
TEST(NcclLate, ASharedCountIsNotUsed) {
    const Job job{{1, 2, 3, 4, 5, 6, 7, 8}};
    const model::Model own = job.record({.from = 9, .created = true, .version = 22403},
                                        {.from = 12.5, .version = 22403});
    EXPECT_EQ(rank_of(own, 1).seq_base, SeqBase::Launched);
}

TEST(NcclLate, WrongCountIsRejected) {
    NodeBuilder early({.start = 9, .flags = NCCL_NODE_FLAGS});
    NcclBuilder first(early.usual(1), {.created = 9});
    NodeBuilder late({.hostname = "node1", .session_id = 2, .start = 11, .flags = NCCL_NODE_FLAGS});
    NcclBuilder second(late.usual(2),
                       {.pid = 200, .rank = 1, .created = 11.5, .flags = MET, .launched = 0});
    first.comm();
    second.comm();
    for (std::uint32_t i = 0; i < 8; ++i) {
        first.call(10 + i, {.count = 1 + i});
        if (i >= 2)
            second.call(10.01 + i, {.count = 1 + i});
    }
    early.clock(20).end();
    late.clock(20).end();
    const model::Model model = model_of({early.bytes(), late.bytes()});
    EXPECT_EQ(rank_of(model, 1).seq_base, SeqBase::Aligned) << "the calls at 0 are others";
    EXPECT_EQ(rank_of(model, 1).seq_of_first, 2U);
}

// Neither count nor time nor size decides: the ranks are not put together.
TEST(NcclLate, AmbiguousIsNotJoined) {
    NodeBuilder early({.start = 9, .flags = NCCL_NODE_FLAGS});
    NcclBuilder first(early.usual(1), {.created = 9, .flags = 0});
    NodeBuilder late({.hostname = "node1", .session_id = 2, .start = 9, .flags = NCCL_NODE_FLAGS});
    NcclBuilder second(late.usual(2), {.pid = 200, .rank = 1, .created = 9, .flags = 0});
    first.comm();
    second.comm();
    for (int i = 0; i < 8; ++i) {
        first.call(10 + i, {.count = 5});
        second.call(10.5 + i, {.count = 5}); // half way between
    }
    early.clock(20).end();
    late.clock(20).end();
    const model::Model model = model_of({early.bytes(), late.bytes()});
    ASSERT_EQ(model.nccl.communicators.size(), 1U);
    ASSERT_EQ(model.nccl.collectives.size(), 16U);
    for (const Operation &operation : model.nccl.collectives) {
        EXPECT_EQ(operation.ranks, 1U);
        EXPECT_TRUE(operation.has(OPERATION_PARTIAL));
        EXPECT_EQ(operation.seq_base, SeqBase::Recording);
    }
}

// That NCCL started nothing before a rank was met does not say that nothing was called: `launched`
// counts collectives alone.
TEST(NcclLate, SendsAndReceivesArePlacedByTheirSequence) {
    for (const std::uint64_t launched : {0U, 1U}) {
        NodeBuilder early({.start = 9, .flags = NCCL_NODE_FLAGS});
        NcclBuilder first(early.usual(1), {.created = 9});
        NodeBuilder late(
            {.hostname = "node1", .session_id = 2, .start = 11, .flags = NCCL_NODE_FLAGS});
        NcclBuilder second(
            late.usual(2),
            {.pid = 200, .rank = 1, .created = 11, .flags = MET, .launched = launched});
        first.comm();
        second.comm();
        for (std::uint32_t i = 0; i < 6; ++i) {
            first.call(10 + i, {.func = CW_NCCL_SEND, .count = 10 + i, .root = 1});
            if (i >= 2)
                second.call(10.01 + i, {.func = CW_NCCL_RECV, .count = 10 + i, .root = 0});
        }
        early.clock(20).end();
        late.clock(20).end();
        const model::Model model = model_of({early.bytes(), late.bytes()});
        ASSERT_EQ(model.nccl.p2p.size(), 6U) << launched;
        for (const Operation &operation : model.nccl.p2p) {
            EXPECT_EQ(operation.count, 10 + operation.seq);
            EXPECT_EQ(operation.ranks, operation.seq < 2 ? 1U : 2U);
            EXPECT_EQ(operation.has(OPERATION_PARTIAL), operation.seq < 2);
            EXPECT_EQ(operation.seq_base, operation.seq < 2 ? SeqBase::Creation : SeqBase::Aligned);
        }
    }
}

// A rank that is part of a job in which calls are made at times 10, 11, ...: `seen` of them.
struct Attached {
    std::int32_t rank = 0;
    std::size_t from = 0, until = 0; // calls
    bool created = false;
    std::uint32_t version = 22809;
    std::vector<std::size_t> captured = {};    // never launched where a probe is
    std::vector<std::size_t> replayed_at = {}; // a graph is launched before these
    std::uint64_t replays = 0;                 // that NCCL counts, before call 12
};

std::vector<std::byte> capture_of(const std::vector<CallOptions> &calls, const Attached &of) {
    NodeBuilder node({.hostname = "node" + std::to_string(of.rank),
                      .session_id = static_cast<std::uint64_t>(of.rank) + 1,
                      .start = of.created ? 9 : 9.5 + static_cast<double>(of.from),
                      .flags = NCCL_NODE_FLAGS});
    node.usual(static_cast<std::uint8_t>(of.rank + 1));
    NcclBuilder rank(node, {.pid = 100U + static_cast<std::uint32_t>(of.rank),
                            .rank = of.rank,
                            .n_ranks = 3,
                            .created = of.created ? 9 : 9.6 + static_cast<double>(of.from),
                            .flags = of.created ? CW_NCCL_COMM_CREATED | CW_NCCL_COMM_LAUNCHED
                                                : std::uint32_t{CW_NCCL_COMM_OUTSIDE},
                            .version = of.version});
    rank.comm();
    std::uint64_t launched = 0;
    for (std::size_t i = 0; i < std::min(calls.size(), of.until); ++i) {
        const bool is_captured =
            std::find(of.captured.begin(), of.captured.end(), i) != of.captured.end();
        const bool is_counted = calls[i].func <= CW_NCCL_ALL_REDUCE && !is_captured;
        const double time = 10.0 + static_cast<double>(i) + 0.003 * of.rank;
        if (i == 12)
            launched += of.replays;
        launched += is_counted ? 1 : 0;
        if (i < of.from)
            continue;
        if (std::find(of.replayed_at.begin(), of.replayed_at.end(), i) != of.replayed_at.end())
            rank.launch(time - 0.5, 0, {},
                        {.plan = 0x777,
                         .flags = CW_NCCL_LAUNCH_LAUNCHED | CW_NCCL_LAUNCH_GRAPH,
                         .launched = launched});
        rank.call(time, calls[i]);
        if (is_counted)
            rank.launch(time + 0.0001, 0, {calls[i]}, {.launched = launched});
    }
    return node.clock(100).end(100).bytes();
}

model::Model attached(const std::vector<CallOptions> &calls, const std::vector<Attached> &ranks) {
    std::vector<std::vector<std::byte>> captures;
    captures.reserve(ranks.size());
    for (const Attached &each : ranks)
        captures.push_back(capture_of(calls, each));
    return model_of(captures);
}

std::vector<CallOptions> reductions(std::size_t n) {
    return std::vector<CallOptions>(n, {.func = CW_NCCL_ALL_REDUCE});
}

// Four that NCCL does not count come after the last that the others were compared with.
TEST(NcclLate, UnrecordedCollectivesPreventJoining) {
    std::vector<CallOptions> calls = reductions(30);
    for (std::size_t i = 14; i < 18; ++i)
        calls[i].func = CW_NCCL_ALL_TO_ALL;
    const model::Model apart = attached(calls, {{.rank = 0, .until = 10, .created = true},
                                                {.rank = 1, .from = 12, .until = 30},
                                                {.rank = 2, .from = 20, .until = 30}});
    EXPECT_FALSE(rank_of(apart, 1).is_joined);
    EXPECT_FALSE(rank_of(apart, 2).is_joined);
    for (const Operation &operation : apart.nccl.collectives)
        EXPECT_EQ(operation.ranks, 1U);
    // Where one saw them, the next is placed by that one.
    const model::Model linked = attached(calls, {{.rank = 0, .until = 10, .created = true},
                                                 {.rank = 2, .from = 20, .until = 30},
                                                 {.rank = 1, .from = 8, .until = 30}});
    EXPECT_EQ(rank_of(linked, 1).seq_of_first, 8U);
    EXPECT_EQ(rank_of(linked, 2).seq_of_first, 20U);
    EXPECT_EQ(rank_of(linked, 2).seq_base, SeqBase::Launched);
}

// Before 2.26 NCCL counts each launch of a graph, too.
TEST(NcclLate, RepetitionsAreNotCollectives) {
    const model::Model model = attached(
        reductions(30), {{.rank = 0,
                          .until = 30,
                          .created = true,
                          .version = 22403,
                          .replayed_at = {11},
                          .replays = 5},
                         {.rank = 1, .from = 14, .until = 30, .version = 22403, .replays = 5}});
    EXPECT_EQ(rank_of(model, 1).seq_base, SeqBase::Aligned);
    EXPECT_EQ(rank_of(model, 1).seq_of_first, 14U);
}

// What was captured and has nothing for the network is launched unseen, and NCCL does not count it.
TEST(NcclLate, UnrecordedCapturesDoNotShiftNumbers) {
    for (const std::size_t from : {5U, 7U, 12U}) {
        const model::Model model =
            attached(reductions(30), {{.rank = 0, .until = 30, .created = true, .captured = {7}},
                                      {.rank = 1, .from = from, .until = 30, .captured = {7}}});
        EXPECT_EQ(rank_of(model, 1).seq_base, SeqBase::Launched) << from;
        EXPECT_EQ(rank_of(model, 1).seq_of_first, from);
    }
}

// The send that was seen from the start cannot be the second one: nothing of that place stays.
TEST(NcclLate, RejectedPlaceIsNotKept) {
    NodeBuilder early({.start = 9, .flags = NCCL_NODE_FLAGS});
    NcclBuilder first(early.usual(1), {.created = 9});
    NodeBuilder late({.hostname = "node1", .session_id = 2, .start = 9, .flags = NCCL_NODE_FLAGS});
    NcclBuilder second(late.usual(2),
                       {.pid = 200, .rank = 1, .created = 9, .flags = MET, .launched = 1});
    first.comm();
    second.comm();
    for (std::uint32_t i = 0; i < 6; ++i) {
        if (i >= 2)
            first.call(10 + i, {.func = CW_NCCL_SEND, .count = 10 + i, .root = 1});
        second.call(10.01 + i, {.func = CW_NCCL_RECV, .count = 10 + i, .root = 0});
    }
    early.clock(20).end();
    late.clock(20).end();
    const model::Model model = model_of({early.bytes(), late.bytes()});
    ASSERT_EQ(model.nccl.p2p.size(), 10U);
    std::set<std::tuple<std::uint64_t, std::int32_t>> keys;
    for (const Operation &operation : model.nccl.p2p) {
        keys.emplace(operation.seq, operation.rank);
        if (operation.seq_base == SeqBase::Creation) {
            EXPECT_EQ(operation.count, 12 + operation.seq);
        } else {
            EXPECT_EQ(operation.rank, 1);
        }
    }
    EXPECT_EQ(keys.size(), 10U);
}

// The recorder of the receiver was started anew.
TEST(NcclLate, SendsAndReceivesOfARestartedRecorderAreNumbered) {
    NodeBuilder sender({.start = 9, .flags = NCCL_NODE_FLAGS});
    NcclBuilder first(sender.usual(1), {.created = 9});
    first.comm();
    for (std::uint32_t i = 0; i < 12; ++i)
        first.call(10 + i, {.func = CW_NCCL_SEND, .count = 10 + i, .root = 1});
    std::vector<std::vector<std::byte>> captures{sender.clock(30).end(30).bytes()};
    for (const bool is_back : {false, true}) {
        NodeBuilder node({.hostname = "node1",
                          .session_id = is_back ? 3U : 2U,
                          .start = is_back ? 16.5 : 9,
                          .flags = NCCL_NODE_FLAGS});
        NcclBuilder second(node.usual(2),
                           {.pid = 200,
                            .rank = 1,
                            .created = is_back ? 16.6 : 9.1,
                            .flags = is_back ? MET : CW_NCCL_COMM_CREATED | CW_NCCL_COMM_LAUNCHED,
                            .launched = is_back ? 6U : 0U});
        second.comm();
        for (std::uint32_t i = is_back ? 7 : 0; i < (is_back ? 12U : 5U); ++i)
            second.call(10.01 + i, {.func = CW_NCCL_RECV, .count = 10 + i, .root = 0});
        const double end = is_back ? 30 : 15.5;
        captures.push_back(node.clock(end).end(end).bytes());
    }
    const model::Model model = model_of(captures);
    ASSERT_EQ(model.nccl.communicators.size(), 1U);
    ASSERT_EQ(model.nccl.p2p.size(), 12U);
    for (const Operation &operation : model.nccl.p2p) {
        EXPECT_EQ(operation.count, 10 + operation.seq);
        EXPECT_EQ(operation.ranks, operation.seq == 5 || operation.seq == 6 ? 1U : 2U);
        EXPECT_EQ(operation.seq_base, operation.seq < 7 ? SeqBase::Creation : SeqBase::Aligned);
    }
}

// Two ranks that are not put together, one of them in two recordings: no number twice.
TEST(NcclLate, EachNumberOfARankIsOneOperation) {
    std::vector<std::vector<std::byte>> captures;
    for (int i = 0; i < 3; ++i) {
        NodeBuilder node({.hostname = i == 0 ? "node0" : "node1",
                          .session_id = static_cast<std::uint64_t>(i) + 1,
                          .start = i == 2 ? 30.0 : 9.0,
                          .flags = NCCL_NODE_FLAGS});
        NcclBuilder rank(node.usual(i == 0 ? 1 : 2), {.pid = i == 0 ? 100U : 200U,
                                                      .rank = i == 0 ? 0 : 1,
                                                      .created = i == 2 ? 30.1 : 9.1,
                                                      .flags = CW_NCCL_COMM_OUTSIDE});
        rank.comm();
        for (int call = 0; call < 8; ++call)
            rank.call((i == 2 ? 31.0 : 10.0) + call + (i == 0 ? 0.0 : 0.5), {.count = 5});
        const double end = i == 2 ? 50 : 20;
        captures.push_back(node.clock(end).end(end).bytes());
    }
    const model::Model model = model_of(captures);
    ASSERT_EQ(model.nccl.communicators.size(), 1U);
    std::set<std::tuple<std::uint64_t, std::int32_t>> keys;
    for (const Operation &operation : model.nccl.collectives) {
        EXPECT_EQ(operation.seq_base, SeqBase::Recording);
        EXPECT_GE(operation.rank, 0);
        keys.emplace(operation.seq, operation.rank);
    }
    EXPECT_EQ(keys.size(), 24U);
}

std::vector<SequenceItem> items(const std::vector<std::uint64_t> &signatures,
                                std::uint64_t first_ns, std::uint64_t step_ns = 1000) {
    std::vector<SequenceItem> result;
    for (std::size_t i = 0; i < signatures.size(); ++i)
        result.push_back({signatures[i], first_ns == 0 ? 0 : first_ns + i * step_ns});
    return result;
}

TEST(AlignSequences, WithoutTimesOnlyAUniqueOffset) {
    const auto found = align_sequences(items({1, 2, 3, 4}, 0), items({3, 4, 5}, 0));
    ASSERT_TRUE(found);
    EXPECT_EQ(found->offset, 2);
    EXPECT_FALSE(align_sequences(items({1, 1, 1}, 0), items({1, 1}, 0)));
    EXPECT_FALSE(align_sequences(items({1, 2}, 0), items({3}, 0)));
    EXPECT_FALSE(align_sequences({}, items({3}, 0)));
    constexpr std::uint64_t second = 1'000'000'000;
    EXPECT_FALSE(align_sequences(items({1, 2}, second), items({2, 3}, 60 * second)))
        << "long after";
}

TEST(AlignSequences, TheNearestInTimeIfItIsClearlyNearest) {
    const std::vector<std::uint64_t> alike(100, 7);
    constexpr std::uint64_t second = 1'000'000'000;
    const auto found = align_sequences(items(alike, 50 * second, second),
                                       items(alike, 60 * second + second / 100, second));
    ASSERT_TRUE(found);
    EXPECT_EQ(found->offset, 10);
    EXPECT_NEAR(found->confidence, 0.99, 0.005);
    EXPECT_FALSE(align_sequences(items(alike, 50 * second, second),
                                 items(alike, 60 * second + second / 2, second)));
}

} // namespace
} // namespace collwire::nccl
