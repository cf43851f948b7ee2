// SPDX-License-Identifier: Apache-2.0
// What number calls have where records of calls were lost.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "collwire/loss_records.h"
#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_launch_records.h"
#include "collwire/node_records.h"
#include "tests/support/model_of.h"
#include "tests/support/nccl_builder.h"
#include "tests/support/nccl_model.h"

namespace collwire::nccl {
namespace {

using namespace collwire::test;

cw_probe taken_off(double time) {
    auto probe = make_record<cw_probe>(CW_KIND_PROBE, seconds(time));
    probe.flags = CW_PROBE_TAKEN_OFF;
    set_text(probe.source, "nccl");
    set_text(probe.function, "ncclEnqueueCheck");
    return probe;
}

// Two ranks make the same calls at times 10, 11, ...; of those of rank 1 some are not here.
struct Job {
    std::vector<CallOptions> calls = std::vector<CallOptions>(30, {.func = CW_NCCL_ALL_REDUCE});
    std::set<std::size_t> lost = {};
    cw_loss_class loss = CW_LOSS_NCCL_CALL;
    bool all_ranks = false;                 // lose records
    std::size_t taken_off_after = SIZE_MAX; // calls, of rank 1: with the last one's launch
    std::uint32_t version = 22809;
    std::uint32_t flags = CW_NCCL_COMM_CREATED | CW_NCCL_COMM_LAUNCHED;

    [[nodiscard]] model::Model record() const {
        std::vector<std::vector<std::byte>> captures;
        for (int i = 0; i < 2; ++i) {
            NodeBuilder node({.hostname = "node" + std::to_string(i),
                              .session_id = static_cast<std::uint64_t>(i) + 1,
                              .start = 9,
                              .flags = NCCL_NODE_FLAGS});
            node.usual(static_cast<std::uint8_t>(i + 1)).clock(15.5).clock(18.5).clock(21.5);
            NcclBuilder rank(node, {.pid = 100U + static_cast<std::uint32_t>(i),
                                    .rank = i,
                                    .created = 9.5,
                                    .flags = flags,
                                    .version = version});
            rank.comm();
            std::uint64_t launched = 0;
            for (std::size_t next = 0; next < calls.size(); ++next) {
                const double time = 10.0 + static_cast<double>(next) + 0.003 * i;
                if (i == 1 && next >= taken_off_after)
                    break;
                if (i == 0 || !lost.contains(next))
                    rank.call(time, calls[next]);
                if (i == 1 && next + 1 == taken_off_after) {
                    node.add(taken_off(time + 0.00005));
                    break;
                }
                launched += calls[next].func <= CW_NCCL_ALL_REDUCE ? 1 : 0;
                rank.launch(time + 0.0001, 0, {calls[next]}, {.launched = launched});
            }
            if ((i == 1 && taken_off_after == SIZE_MAX) || all_ranks)
                node.loss(loss, 0, 1, 22);
            node.clock(50).end(50);
            captures.push_back(node.bytes());
        }
        return model_of(captures);
    }
};

// The number of each call of a rank that is put together with others', by its time. -1: it is not.
std::map<std::size_t, std::int64_t> numbers_of(const model::Model &model, std::int32_t rank) {
    std::map<std::size_t, std::int64_t> numbers;
    const NcclFacts &nccl = model.nccl;
    for (const Instance &instance : nccl.instances) {
        if (instance.record.rank != rank)
            continue;
        for (std::uint32_t i = instance.first_call; i < instance.first_call + instance.n_calls;
             ++i) {
            const Operation &operation =
                nccl.collectives[nccl.call_joins[instance.stream].operation(i)];
            const std::uint64_t time_ns = nccl.gathered.streams[instance.stream].calls[i].time_ns;
            numbers[(time_ns - 10 * NS) / NS] = operation.seq_base == SeqBase::Recording
                                                    ? -1
                                                    : static_cast<std::int64_t>(operation.seq);
            EXPECT_EQ(operation.rank, operation.seq_base == SeqBase::Recording ? rank : -1);
        }
    }
    return numbers;
}

// All but those that may have been called with a lost one: which of the two was first is not known.
void expect_numbers(const Job &job) {
    const model::Model model = job.record();
    for (const std::int32_t rank : {0, 1}) {
        const auto numbers = numbers_of(model, rank);
        EXPECT_EQ(numbers.size(), job.calls.size() - (rank == 0 ? 0 : job.lost.size()));
        for (const auto &[call, number] : numbers) {
            const bool is_before = rank == 1 && job.lost.contains(call + 1);
            EXPECT_EQ(number, is_before ? -1 : static_cast<std::int64_t>(call)) << rank;
        }
    }
    for (const Operation &operation : model.nccl.collectives) {
        if (operation.seq_base == SeqBase::Recording)
            continue;
        const bool is_here =
            !job.lost.contains(operation.seq) && !job.lost.contains(operation.seq + 1);
        EXPECT_EQ(operation.ranks, is_here ? 2U : 1U);
    }
}

TEST(NcclLoss, CollectiveAfterALostCallKeepsItsNumber) {
    expect_numbers({.lost = {12}});
    expect_numbers({.lost = {12, 13, 20}});
    expect_numbers({.lost = {10}, .loss = CW_LOSS_RECORD_WRITE});
}

// All calls are here, so their numbers count on.
TEST(NcclLoss, UnreadableLaunchesDoNotShiftNumbers) {
    const model::Model model = Job{.loss = CW_LOSS_NCCL_FAULT}.record();
    EXPECT_EQ(model.nccl.collectives.size(), 30U);
    for (const Operation &operation : model.nccl.collectives) {
        EXPECT_EQ(operation.seq_base, SeqBase::Creation);
        EXPECT_EQ(operation.ranks, 2U);
    }
}

// Rank 1 makes more calls, and a last one here whose launch is not: not one that never launches.
TEST(NcclLoss, CallsBeforeProbesWereTakenOffAreWhole) {
    Job job;
    job.taken_off_after = 20;
    const model::Model model = job.record();
    EXPECT_EQ(model.nccl.collectives.size(), 30U);
    for (const Operation &operation : model.nccl.collectives) {
        EXPECT_EQ(operation.seq_base, SeqBase::Creation);
        EXPECT_EQ(operation.ranks, operation.seq < 20 ? 2U : 1U);
        EXPECT_EQ(operation.has(OPERATION_PARTIAL), operation.seq >= 19);
    }
    EXPECT_FALSE(job.record().nccl.instances.empty());
}

TEST(NcclLoss, LossOnAllRanksKeepsNumbers) {
    expect_numbers({.lost = {12}, .all_ranks = true});
}

// NCCL counts nothing of AlltoAll; the other rank's calls show that one was there.
TEST(NcclLoss, LostCallThatNcclDoesNotCountShiftsNoNumber) {
    Job job{.lost = {12}};
    job.calls[12].func = job.calls[14].func = CW_NCCL_ALL_TO_ALL;
    const model::Model model = job.record();
    const auto numbers = numbers_of(model, 1);
    for (const auto &[call, number] : numbers)
        EXPECT_EQ(number, static_cast<std::int64_t>(call));
    // Where it is not known, it is absent.
    Job all = job;
    all.all_ranks = true;
    const model::Model unnumbered = all.record();
    for (const auto &[call, number] : numbers_of(unnumbered, 1))
        EXPECT_TRUE(number == -1 || number == static_cast<std::int64_t>(call)) << call;
}

// Before 2.26 the count may be of several communicators.
TEST(NcclLoss, WithoutACountOnlyEarlierCallsAreNumbered) {
    const Job job{.lost = {12},
                  .version = 22403,
                  .flags = CW_NCCL_COMM_CREATED | CW_NCCL_COMM_LAUNCHED | CW_NCCL_COMM_SHARED};
    const model::Model model = job.record();
    for (const auto &[call, number] : numbers_of(model, 1))
        EXPECT_EQ(number, call < 9 ? static_cast<std::int64_t>(call) : -1)
            << "the reading before the last one without loss is at 18.5";
    EXPECT_FALSE(model.nccl.instances[1].is_joined);
    EXPECT_TRUE(model.nccl.instances[0].is_joined);
}

TEST(NcclLoss, SendsAndReceivesAreNumberedUpToTheLoss) {
    NodeBuilder node[2] = {
        NodeBuilder({.start = 9, .flags = NCCL_NODE_FLAGS}),
        NodeBuilder({.hostname = "node1", .session_id = 2, .start = 9, .flags = NCCL_NODE_FLAGS})};
    for (int i = 0; i < 2; ++i) {
        node[i].usual(static_cast<std::uint8_t>(i + 1)).clock(15.5).clock(18.5).clock(21.5);
        NcclBuilder rank(node[i],
                         {.pid = 100U + static_cast<std::uint32_t>(i), .rank = i, .created = 9.5});
        rank.comm();
        for (int call = 0; call < 20; ++call)
            if (i == 0 || call != 10)
                rank.call(10.0 + call,
                          {.func = i == 0 ? std::uint8_t{CW_NCCL_SEND} : std::uint8_t{CW_NCCL_RECV},
                           .root = 1 - i});
    }
    node[1].loss(CW_LOSS_NCCL_CALL, 0, 1, 22);
    std::vector<std::vector<std::byte>> captures;
    for (NodeBuilder &each : node)
        captures.push_back(each.clock(50).end(50).bytes());
    const model::Model model = model_of(captures);
    ASSERT_EQ(model.nccl.p2p.size(), 30U);
    for (const Operation &operation : model.nccl.p2p) {
        const bool is_alone = operation.seq_base == SeqBase::Recording;
        EXPECT_EQ(operation.rank, is_alone ? 1 : -1);
        EXPECT_EQ(operation.ranks, !is_alone && operation.seq < 9 ? 2U : 1U);
    }
}

// What was called before is known as if nothing had been lost, what never goes to a proxy included.
TEST(NcclLoss, LaunchesBeforeALossStayExact) {
    for (const cw_loss_class loss : {CW_LOSS_NCCL_LAUNCH, CW_LOSS_NCCL_FAULT, CW_LOSS_NCCL_CALL,
                                     CW_LOSS_NCCL_SHAPE, CW_LOSS_RECORD_WRITE}) {
        SCOPED_TRACE(loss);
        RingPair ring;
        const CallOptions local{.func = CW_NCCL_ALL_REDUCE, .count = 1};
        for (const double time : {12.0, 300.0}) {
            ring.all_gather(time, 1000);
            for (NcclBuilder &rank : ring.rank)
                rank.call(time + 1, local);
            ring.all_gather(time + 2, 1000).sample(time + 5);
        }
        std::vector<std::vector<std::byte>> captures;
        for (NodeBuilder &node : ring.node) {
            for (const double time : {72.0, 132.0, 192.0, 252.0, 312.0})
                node.clock(time);
            captures.push_back(node.loss(loss, 0, 1, 320).clock(372).end(372).bytes());
        }
        const model::Model model = model_of(captures);
        for (std::uint64_t seq = 0; seq < 3; ++seq) {
            const Operation &operation = collective(model, seq);
            EXPECT_FALSE(operation.has(OPERATION_PARTIAL)) << seq;
            EXPECT_EQ(operation.has(OPERATION_PAYLOAD_KNOWN), seq != 1) << seq;
            EXPECT_EQ(operation.payload_bytes, seq == 1 ? 0U : 8000U) << seq;
            EXPECT_EQ(operation.rung, seq == 1 ? Rung::Process : Rung::Exact) << seq;
        }
        if (loss == CW_LOSS_NCCL_CALL || loss == CW_LOSS_RECORD_WRITE)
            continue; // the numbers of those after it are a rank's own
        EXPECT_EQ(collective(model, 4).has(OPERATION_PARTIAL), loss != CW_LOSS_NCCL_SHAPE);
        EXPECT_FALSE(collective(model, 4).has(OPERATION_PAYLOAD_KNOWN));
        EXPECT_EQ(collective(model, 3).rung,
                  loss == CW_LOSS_NCCL_SHAPE ? Rung::Exact : Rung::Inferred);
    }
}

// Since when is not known.
TEST(NcclLoss, StalledRingBufferMakesOperationsPartial) {
    for (const bool stood : {false, true}) {
        SCOPED_TRACE(stood);
        RingPair ring;
        ring.all_gather(12, 1000);
        for (NcclBuilder &rank : ring.rank)
            rank.call(13, {.func = CW_NCCL_ALL_REDUCE, .count = 1});
        ring.all_gather(14, 1000).sample(20);
        std::vector<std::vector<std::byte>> captures;
        for (NodeBuilder &node : ring.node) {
            for (const double time : {72.0, 132.0, 192.0, 252.0, 312.0})
                node.clock(time);
            if (stood)
                node.loss(CW_LOSS_RING_UNREAD, 0, 1, 372);
            captures.push_back(node.clock(372).end(372).bytes());
        }
        const model::Model model = model_of(captures);
        unsigned n_partial = 0;
        for (const Operation &operation : model.nccl.collectives) {
            n_partial += operation.has(OPERATION_PARTIAL) ? 1 : 0;
            EXPECT_EQ(operation.seq_base == SeqBase::Creation, !stood);
        }
        EXPECT_EQ(n_partial != 0, stood);
    }
}

// Replays of a captured call before the loss, and after it.
TEST(NcclLoss, ReplaysBeforeALostLaunchStayExact) {
    RingPair ring;
    const CallOptions call{.count = 1000};
    constexpr LaunchOptions replay{.plan = 0x6000,
                                   .flags = CW_NCCL_LAUNCH_GRAPH | CW_NCCL_LAUNCH_LAUNCHED};
    for (int i = 0; i < 2; ++i)
        ring.rank[i].shape(12, 1000, {call}, ring.ops(i, 4000)).call(12, call);
    for (const double time : {13.0, 300.0}) {
        for (int i = 0; i < 2; ++i) {
            ring.rank[i].launch(time, 1000, {call}, replay);
            ring.sends(i, 4000);
        }
        ring.sample(time + 5);
    }
    std::vector<std::vector<std::byte>> captures;
    for (NodeBuilder &node : ring.node) {
        for (const double time : {72.0, 132.0, 192.0, 252.0, 312.0})
            node.clock(time);
        node.loss(CW_LOSS_NCCL_LAUNCH, 0, 1, 320).clock(372).end(372);
        captures.push_back(node.bytes());
    }
    const model::Model model = model_of(captures);
    EXPECT_EQ(collective(model, 0, 0).rung, Rung::Exact);
    EXPECT_EQ(collective(model, 0, 1).rung, Rung::Inferred);
}

} // namespace
} // namespace collwire::nccl
