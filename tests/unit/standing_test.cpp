// SPDX-License-Identifier: Apache-2.0
// Where ranks stood, from the records of nodes; and which part of captures shows it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collwire/loss_records.h"
#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_connection_records.h"
#include "collwire/nccl_error_records.h"
#include "collwire/nccl_launch_records.h"
#include "collwire/port_records.h"
#include "collwire/qp_records.h"
#include "collwire/record_kinds.h"
#include "correlate/capture/reader.h"
#include "correlate/stall/judge.h"
#include "correlate/stream/clock_graph.h"
#include "correlate/stream/node_standing.h"
#include "correlate/stream/pair_joiner.h"
#include "correlate/stream/standing_joiner.h"
#include "correlate/stream/tail_finder.h"
#include "tests/support/capture_builder.h"

namespace collwire::stream {
namespace {

using test::CaptureBuilder;
using test::make_record;

constexpr std::uint64_t S = 1'000'000'000;
constexpr std::uint64_t REALTIME_NS = 1000 * S; // less CLOCK_MONOTONIC
constexpr std::uint32_t NODES = 2;

// The records of a job of one rank on each node, which call AllReduces.
class JobRecords {
public:
    explicit JobRecords(std::uint32_t flags = CW_NCCL_COMM_CREATED) {
        for (std::uint32_t node = 0; node < NODES; ++node) {
            auto of_node = make_record<cw_node>(CW_KIND_NODE, S);
            of_node.session_id = node + 1;
            of_node.realtime_ns = S + REALTIME_NS;
            of_node.sample_interval_ns = S;
            test::set_text(of_node.boot_id, "boot" + std::to_string(node));
            test::set_text(of_node.hostname, "node" + std::to_string(node));
            captures_[node].add(of_node);
            auto image = make_record<cw_nccl_image>(CW_KIND_NCCL_IMAGE, S);
            image.image_id = 1;
            image.version = 22'809;
            image.rungs[CW_NCCL_OPERATIONS] = CW_RUNG_EXACT;
            captures_[node].add(image);
            auto comm = make_record<cw_nccl_comm>(CW_KIND_NCCL_COMM, 2 * S);
            comm.tgid = 100 + node;
            comm.comm = 0x1000;
            comm.comm_hash = 7;
            comm.image_id = 1;
            comm.rank = static_cast<std::int32_t>(node);
            comm.n_ranks = comm.n_nodes = NODES;
            comm.flags = flags;
            captures_[node].add(comm);
            comms_[node] = comm;
        }
    }
    // `launched`: NCCL's count after the launch; 0: the call is not launched.
    void call(std::uint32_t node, std::uint64_t time_ns, std::uint64_t launched,
              std::uint64_t count = 4) {
        auto call = make_record<cw_nccl_call>(CW_KIND_NCCL_CALL, time_ns);
        call.tgid = call.tid = 100 + node;
        call.comm = 0x1000;
        call.count = count;
        call.func = CW_NCCL_ALL_REDUCE;
        call.datatype = 7;
        captures_[node].add(call);
        if (launched == 0)
            return;
        auto launch = make_record<cw_nccl_launch>(CW_KIND_NCCL_LAUNCH, time_ns + 1000);
        launch.tgid = 100 + node;
        launch.comm = 0x1000;
        launch.launched = launched;
        launch.flags = CW_NCCL_LAUNCH_LAUNCHED;
        captures_[node].add(launch);
    }
    // Rank 0 sends to rank 1, which receives: a call of one of them.
    void transfer(std::uint32_t node, std::uint64_t time_ns, std::uint64_t count = 4) {
        auto call = make_record<cw_nccl_call>(CW_KIND_NCCL_CALL, time_ns);
        call.tgid = call.tid = 100 + node;
        call.comm = 0x1000;
        call.count = count;
        call.func = node == 0 ? CW_NCCL_SEND : CW_NCCL_RECV;
        call.root = node == 0 ? 1 : 0;
        call.datatype = 7;
        captures_[node].add(call);
    }
    // The same, launched on a connection: a task that is in the launch twice, and 8 steps.
    void connect(std::uint32_t node) {
        const std::uint8_t func = node == 0 ? CW_NCCL_SEND : CW_NCCL_RECV;
        auto connection = make_record<cw_nccl_connection>(CW_KIND_NCCL_CONNECTION, 2 * S);
        connection.tgid = 100 + node;
        connection.comm = 0x1000;
        connection.connection = 0x2000;
        connection.transport = CW_NCCL_TRANSPORT_IB;
        connection.channel = 3;
        connection.conn_index = 1;
        captures_[node].add(connection);
        for (std::uint32_t i = 0; i < 2; ++i) {
            auto task = make_record<cw_nccl_shape_task>(CW_KIND_NCCL_SHAPE_TASK, 2 * S);
            task.tgid = 100 + node;
            task.comm = 0x1000;
            task.shape = 0x3000;
            task.index = i;
            task.func = task.api_func = func;
            task.root = node == 0 ? 1 : 0;
            captures_[node].add(task);
        }
        auto ops = make_record<cw_nccl_shape_ops>(CW_KIND_NCCL_SHAPE_OPS, 2 * S);
        ops.tgid = 100 + node;
        ops.comm = 0x1000;
        ops.shape = 0x3000;
        ops.n_ops = ops.n = 1;
        ops.ops[0].connection = 0x2000;
        ops.ops[0].nsteps = 8;
        ops.ops[0].task = 1;
        ops.ops[0].pattern = node == 0 ? CW_NCCL_PATTERN_SEND : CW_NCCL_PATTERN_RECV;
        captures_[node].add(ops);
    }
    void steps(std::uint32_t node, std::uint64_t time_ns, std::uint64_t steps) {
        auto sample = make_record<cw_nccl_steps>(CW_KIND_NCCL_STEPS, time_ns);
        sample.tgid = 100 + node;
        sample.connection = 0x2000;
        sample.steps = steps;
        sample.read_ns = time_ns - 1000;
        sample.flags = CW_NCCL_STEPS_IDLE;
        captures_[node].add(sample);
    }
    void launch(std::uint32_t node, std::uint64_t time_ns) {
        auto launch = make_record<cw_nccl_launch>(CW_KIND_NCCL_LAUNCH, time_ns);
        launch.tgid = 100 + node;
        launch.comm = 0x1000;
        launch.plan = 0x4000;
        launch.shape = 0x3000;
        launch.n_tasks = 2;
        launch.tasks[0].task = launch.tasks[1].task = 0x50;
        captures_[node].add(launch);
    }
    // Each sends three times, and receives three times, each in a launch of its own.
    void take_turns(std::uint32_t node, bool is_launched) {
        for (const bool is_send : {true, false}) {
            auto task = make_record<cw_nccl_shape_task>(CW_KIND_NCCL_SHAPE_TASK, 2 * S);
            task.tgid = 100 + node;
            task.comm = 0x1000;
            task.shape = is_send ? 0x5000 : 0x6000;
            task.func = task.api_func = is_send ? CW_NCCL_SEND : CW_NCCL_RECV;
            task.root = node == 0 ? 1 : 0;
            captures_[node].add(task);
        }
        for (std::uint64_t i = 0; i < 6; ++i) {
            const bool is_send = (i < 3) == (node == 0);
            auto call = make_record<cw_nccl_call>(CW_KIND_NCCL_CALL, (10 + i) * S);
            call.tgid = call.tid = 100 + node;
            call.comm = 0x1000;
            call.count = 1 << 20;
            call.func = is_send ? CW_NCCL_SEND : CW_NCCL_RECV;
            call.root = node == 0 ? 1 : 0;
            call.datatype = 7;
            captures_[node].add(call);
            if (!is_launched)
                continue;
            auto launch = make_record<cw_nccl_launch>(CW_KIND_NCCL_LAUNCH, (10 + i) * S + 1000);
            launch.tgid = 100 + node;
            launch.comm = 0x1000;
            launch.shape = is_send ? 0x5000 : 0x6000;
            launch.n_tasks = 1;
            captures_[node].add(launch);
        }
    }
    // Its first record has a name; those that follow are of the same communicator.
    void name(const std::string &name) {
        for (std::uint32_t node = 0; node < NODES; ++node) {
            comms_[node].header.time_ns = S + S / 2;
            test::set_text(comms_[node].name, name);
            captures_[node].add(comms_[node]);
        }
    }
    template <typename T> void add(std::uint32_t node, const T &record) {
        captures_[node].add(record);
    }
    void sample(std::uint32_t node, std::uint64_t time_ns, const cw_counter_sample &sample) {
        captures_[node].add_samples(time_ns - 1000, time_ns, {sample});
    }
    void end_block() {
        for (CaptureBuilder &capture : captures_)
            capture.end_block();
    }
    std::vector<std::vector<std::byte>> files(std::uint64_t end_ns) {
        std::vector<std::vector<std::byte>> files;
        for (CaptureBuilder &capture : captures_)
            files.push_back(capture.add_end(end_ns).bytes());
        return files;
    }
    StandingJoiner join(std::uint64_t end_ns) {
        StandingJoiner joiner;
        for (const std::vector<std::byte> &file : files(end_ns)) {
            NodeStanding node("");
            const auto summary = capture::read_capture(
                file, [&](const cw_header &header, auto record) { node.add(header, record); });
            node.end_capture(*summary);
            joiner.add(node.finish());
        }
        return joiner;
    }

private:
    CaptureBuilder captures_[NODES];
    cw_nccl_comm comms_[NODES]{};
};

// Rank 1 does not call the fourth one.
void stop_rank(JobRecords &job, std::uint64_t first) {
    for (std::uint64_t i = 0; i < 4; ++i)
        for (std::uint32_t node = 0; node < NODES; ++node)
            if (node == 0 || i < 3)
                job.call(node, (10 + i) * S + std::uint64_t{node} * 1000, first + i + 1);
}

TEST(Standing, NamesTheRankThatHasNotCalled) {
    JobRecords job;
    stop_rank(job, 0);
    StandingJoiner joiner = job.join(100 * S);
    ASSERT_EQ(joiner.needs_model(), "");
    const stall::Standings standings = joiner.take();
    ASSERT_EQ(standings.communicators.size(), 1U);
    const stall::Communicator &comm = standings.communicators.front();
    ASSERT_EQ(comm.operations.size(), 2U);
    EXPECT_EQ(comm.operations[1].text, "AllReduce of 16 B (seq 3)");
    EXPECT_EQ(comm.operations[1].begin_ns, REALTIME_NS + 13 * S);
    EXPECT_EQ(comm.ranks[0].called, 1U);
    EXPECT_EQ(comm.ranks[0].launched, 1U);
    EXPECT_EQ(comm.ranks[1].called, 0U);
    EXPECT_EQ(comm.ranks[1].longest_pause_ns, S);
    const auto verdicts = stall::judge(standings);
    ASSERT_EQ(verdicts.size(), 1U);
    EXPECT_EQ(verdicts[0].code, verdict::Code::RankNotCalled);
    EXPECT_EQ(verdicts[0].subject.host, "node1");
    EXPECT_EQ(verdicts[0].subject.pid, 101U);
}

// Buckets of two sizes that repeat, on two nodes: gradients.
TEST(Standing, GuessesWhatACommunicatorIsForFromItsCalls) {
    constexpr std::uint64_t LARGE = 1 << 20;
    for (const bool has_name : {false, true}) {
        JobRecords job;
        if (has_name)
            job.name("data0");
        for (std::uint64_t i = 0; i < 8; ++i)
            for (std::uint32_t node = 0; node < NODES; ++node)
                if (node == 0 || i < 7)
                    job.call(node, (10 + i) * S + std::uint64_t{node} * 1000, i + 1,
                             i % 2 == 0 ? LARGE : 2 * LARGE);
        const stall::Standings standings = job.join(100 * S).take();
        EXPECT_EQ(standings.communicators.front().guessed_role, has_name ? "" : "dp");
        const auto verdicts = stall::judge(standings);
        ASSERT_EQ(verdicts.size(), 1U);
        EXPECT_EQ(verdicts[0].subject.guessed_role, has_name ? "" : "dp");
        EXPECT_EQ(verdicts[0].subject.communicator_name, has_name ? "data0" : "");
    }
}

// Rank 0 sends twice, then rank 1 does: a pipeline of two stages. Sends that are not launched do
// not show it.
TEST(Standing, GuessesAPipelineFromTheTurnsOfLaunches) {
    for (const bool is_launched : {true, false}) {
        JobRecords job;
        for (std::uint32_t node = 0; node < NODES; ++node)
            job.take_turns(node, is_launched);
        const stall::Standings standings = job.join(100 * S).take();
        EXPECT_EQ(standings.communicators.front().guessed_role, is_launched ? "pp" : "");
    }
}

// Read from the middle on: NCCL's count numbers the calls.
TEST(Standing, NumbersCallsByTheCountOfLaunches) {
    JobRecords job(0);
    stop_rank(job, 5000);
    const stall::Standings standings = job.join(100 * S).take();
    EXPECT_EQ(standings.communicators[0].operations[1].text, "AllReduce of 16 B (seq 5003)");
    EXPECT_TRUE(standings.communicators[0].is_comparable);
}

TEST(Standing, NamesTheRankWithOtherArguments) {
    JobRecords job;
    job.call(0, 10 * S, 1);
    job.call(1, 10 * S, 1);
    job.call(0, 11 * S, 2, 4);
    job.call(1, 11 * S, 2, 8);
    const stall::Standings standings = job.join(100 * S).take();
    const stall::Operation &last = standings.communicators[0].operations.back();
    ASSERT_TRUE(last.differs);
    ASSERT_EQ(last.variants.size(), 2U);
    EXPECT_EQ(last.variants[0].ranks, std::vector<std::int32_t>{0});
    EXPECT_EQ(last.variants[1].ranks, std::vector<std::int32_t>{1});
}

// A host whose clock is an hour ahead.
TEST(Standing, ComparesClocksByEqualOperations) {
    JobRecords job;
    auto clock = make_record<cw_clock>(CW_KIND_CLOCK, 3 * S);
    clock.realtime_ns = 3 * S + REALTIME_NS + 3600 * S;
    job.add(1, clock);
    stop_rank(job, 0);
    const stall::Standings standings = job.join(100 * S).take();
    const stall::Communicator &comm = standings.communicators.front();
    EXPECT_EQ(comm.operations[1].begin_ns, REALTIME_NS + 13 * S);
    EXPECT_NEAR(static_cast<double>(comm.ranks[1].until_ns),
                static_cast<double>(REALTIME_NS + 100 * S), 1e6);
}

// Recorded from the creation on: the third send has no receive.
TEST(Standing, NamesTheRankThatHasNotReceived) {
    JobRecords job;
    for (std::uint64_t i = 0; i < 3; ++i)
        job.transfer(0, (10 + i) * S, 4 + i);
    for (std::uint64_t i = 0; i < 2; ++i)
        job.transfer(1, (10 + i) * S, 4 + i);
    StandingJoiner joiner = job.join(100 * S);
    ASSERT_EQ(joiner.needs_model(), "");
    const stall::Standings standings = joiner.take();
    EXPECT_EQ(joiner.unknown_ends(), 0U);
    ASSERT_EQ(standings.communicators.front().open_pairs.size(), 1U);
    const stall::OpenPair &open = standings.communicators.front().open_pairs.front();
    EXPECT_EQ(open.from, 0);
    EXPECT_EQ(open.awaits, 1);
    EXPECT_EQ(open.text, "Recv of 24 B from rank 0");
    EXPECT_EQ(open.since_ns, REALTIME_NS + 12 * S);
    const auto verdicts = stall::judge(standings);
    ASSERT_EQ(verdicts.size(), 1U);
    EXPECT_EQ(verdicts[0].code, verdict::Code::RankNotCalled);
    EXPECT_EQ(verdicts[0].subject.host, "node1");
}

TEST(Standing, NamesTheRankThatHasNotSent) {
    JobRecords job;
    job.transfer(0, 10 * S);
    for (std::uint64_t i = 0; i < 2; ++i)
        job.transfer(1, (10 + i) * S);
    const stall::Standings standings = job.join(100 * S).take();
    ASSERT_EQ(standings.communicators.front().open_pairs.size(), 1U);
    EXPECT_EQ(standings.communicators.front().open_pairs.front().text, "Send of 16 B to rank 1");
}

// From the middle on, and the receiver's part begins two sends later, half a period apart: steps
// tell, times do not.
TEST(Standing, NumbersSendsByTheStepsOfTheirConnection) {
    JobRecords job(0);
    job.connect(0);
    job.connect(1);
    job.steps(0, 9 * S, 800);
    job.steps(1, 12 * S - S / 2, 816);
    for (std::uint64_t i = 0; i < 6; ++i) {
        if (i == 5)
            job.steps(0, 15 * S - S / 4, 840);
        for (std::uint32_t node = 0; node < NODES; ++node)
            if (node == 0 || (i > 1 && i < 5)) {
                const std::uint64_t time_ns = (10 + i) * S + node * S / 2;
                job.transfer(node, time_ns);
                job.launch(node, time_ns + 1000);
            }
    }
    job.steps(1, 30 * S, 840);
    StandingJoiner joiner = job.join(100 * S);
    ASSERT_EQ(joiner.needs_model(), "");
    const stall::Standings standings = joiner.take();
    EXPECT_EQ(joiner.unknown_pairs(), 0U);
    ASSERT_EQ(standings.communicators.front().open_pairs.size(), 1U);
    EXPECT_EQ(standings.communicators.front().open_pairs.front().since_ns, REALTIME_NS + 15 * S);
}

TEST(Standing, SaysThatSendsCannotBeCompared) {
    JobRecords job(0);
    job.transfer(0, 10 * S);
    StandingJoiner joiner = job.join(100 * S);
    const stall::Standings standings = joiner.take();
    EXPECT_TRUE(standings.communicators.front().open_pairs.empty());
    EXPECT_EQ(joiner.unknown_pairs(), 1U);
}

PairJoiner::CommonTime same_clock() {
    return [](std::size_t, std::uint64_t time_ns) { return time_ns; };
}

RankStanding rank_with(std::int32_t rank, bool is_send, std::vector<TransferCall> calls) {
    RankStanding standing;
    standing.rank = rank;
    PeerCalls &of_peer = standing.transfers.emplace_back();
    of_peer.peer = 1 - rank;
    of_peer.is_send = is_send;
    of_peer.n = calls.size();
    of_peer.last = std::move(calls);
    return standing;
}

TransferCall call_at(std::uint64_t time_ns, std::uint64_t end_steps = 0, std::uint64_t count = 4) {
    TransferCall call;
    call.realtime_ns = time_ns;
    call.end_steps = end_steps;
    call.count = count;
    call.datatype = 7;
    return call;
}

// The steps of one end say another thing than those of the other: they are not believed.
TEST(PairJoiner, BelievesOnlyStepsThatAgree) {
    PairJoiner steps_disagree;
    steps_disagree.add(0, rank_with(0, true, {call_at(S, 8), call_at(2 * S, 24)}));
    steps_disagree.add(
        1, rank_with(1, false, {call_at(S, 8), call_at(2 * S, 16), call_at(3 * S, 24)}));
    steps_disagree.finish([](std::size_t, std::uint64_t) { return 0; });
    EXPECT_EQ(steps_disagree.unknown(), 1U);
    PairJoiner sizes_differ;
    sizes_differ.add(0, rank_with(0, true, {call_at(S, 8, 4), call_at(2 * S, 16, 8)}));
    sizes_differ.add(1, rank_with(1, false, {call_at(S, 0, 5), call_at(2 * S, 16, 8)}));
    sizes_differ.finish([](std::size_t, std::uint64_t) { return 0; });
    EXPECT_EQ(sizes_differ.unknown(), 1U);
}

// Without steps: sizes and times.
TEST(PairJoiner, AlignsByTimeWhereNothingElseTells) {
    PairJoiner pairs;
    std::vector<TransferCall> sends, receives;
    for (std::uint64_t i = 0; i < 8; ++i)
        sends.push_back(call_at((10 + i) * S));
    for (std::uint64_t i = 2; i < 7; ++i)
        receives.push_back(call_at((10 + i) * S + 1000));
    pairs.add(0, rank_with(0, true, sends));
    pairs.add(1, rank_with(1, false, receives));
    pairs.finish(same_clock());
    EXPECT_EQ(pairs.unknown(), 0U);
    ASSERT_EQ(pairs.open().size(), 1U);
    EXPECT_TRUE(pairs.open().begin()->second.is_send);
    EXPECT_EQ(pairs.open().begin()->second.call.realtime_ns, 17 * S);
}

// A rank that is ahead by more than is remembered.
TEST(PairJoiner, DoesNotGuessWhatItHasForgotten) {
    PairJoiner pairs;
    RankStanding sender = rank_with(0, true, {call_at(10 * S)});
    sender.transfers.front().n = 5;
    sender.transfers.front().first_number = 0;
    RankStanding receiver = rank_with(1, false, {call_at(S)});
    receiver.transfers.front().first_number = 0;
    pairs.add(0, sender);
    pairs.add(1, receiver);
    pairs.finish(same_clock());
    EXPECT_TRUE(pairs.open().empty());
    EXPECT_EQ(pairs.unknown(), 1U);
}

TEST(ClockGraph, UsesWeakDifferencesOnlyWhereNoOtherLeads) {
    ClockGraph clocks(4);
    clocks.add(0, 1, 500, true);
    clocks.add(0, 2, 10);
    clocks.add(2, 1, 20);
    clocks.add(1, 3, 100, true);
    EXPECT_EQ(clocks.solve(), (std::vector<std::int64_t>{0, 30, 10, 130}));
}

TEST(Standing, LeavesToTheModelWhatItCannotTell) {
    const auto why = [](const auto &add) {
        JobRecords job;
        add(job);
        return job.join(100 * S).needs_model();
    };
    EXPECT_NE(why([](JobRecords &job) {
                  auto launch = make_record<cw_nccl_launch>(CW_KIND_NCCL_LAUNCH, 10 * S);
                  launch.flags = CW_NCCL_LAUNCH_GRAPH;
                  job.add(0, launch);
              }).find("graph"),
              std::string::npos);
    EXPECT_NE(why([](JobRecords &job) {
                  auto loss = make_record<cw_loss>(CW_KIND_LOSS, 10 * S);
                  loss.records = 1;
                  job.add(0, loss);
              }).find("lost"),
              std::string::npos);
    EXPECT_EQ(why([](JobRecords &job) { job.call(0, 10 * S, 1); }), "");
}

// A counter that stays the same is none; nor are the two numbers of one counter of two segments.
TEST(Standing, SaysWhereSignsOfTheNetworkAndErrorsAre) {
    const auto signs = [](const auto &add) {
        JobRecords job;
        add(job);
        const StandingJoiner joiner = job.join(100 * S);
        EXPECT_EQ(joiner.needs_model(), "");
        return std::pair(joiner.has_network_signs(), joiner.has_errors());
    };
    const auto with_counter = [&](std::uint64_t first, std::uint64_t second) {
        return signs([&](JobRecords &job) {
            auto counter = make_record<cw_counter_def>(CW_KIND_COUNTER_DEF, 3 * S);
            counter.id = 5;
            test::set_text(counter.name, "symbol_error");
            job.add(1, counter);
            job.sample(1, 4 * S, {5, 0, first});
            job.sample(1, 5 * S, {5, 0, second});
        });
    };
    EXPECT_EQ(with_counter(7, 7), std::pair(false, false));
    EXPECT_EQ(with_counter(7, 8), std::pair(true, false));
    EXPECT_EQ(signs([](JobRecords &job) {
                  auto result = make_record<cw_nccl_result>(CW_KIND_NCCL_RESULT, 10 * S);
                  result.tgid = 100;
                  result.comm = 0x1000;
                  result.result = 6;
                  job.add(0, result);
              }),
              std::pair(false, true));
    EXPECT_EQ(signs([](JobRecords &job) {
                  job.add(0, make_record<cw_nccl_warning>(CW_KIND_NCCL_WARNING, 10 * S));
              }),
              std::pair(false, false));
    EXPECT_EQ(signs([](JobRecords &job) {
                  job.add(0, make_record<cw_qp_event>(CW_KIND_QP_ERROR, 10 * S));
              }),
              std::pair(true, true));
    EXPECT_EQ(signs([](JobRecords &job) {
                  auto event = make_record<cw_qp_event>(CW_KIND_QP_STATE, 10 * S);
                  event.new_state = 6;
                  job.add(0, event);
              }),
              std::pair(false, true));
}

// Ten seconds before the third last call of the rank that called last the longest ago.
TEST(TailFinder, BeginsBeforeTheLastCallsOfEachRank) {
    JobRecords job;
    for (std::uint64_t i = 0; i < 500; ++i) {
        job.call(0, (10 + i) * S, i + 1);
        if (i < 400)
            job.call(1, (10 + i) * S, i + 1);
        job.end_block();
    }
    const auto files = job.files(520 * S);
    TailFinder finder(UINT64_MAX);
    std::size_t n_read = 0;
    for (std::size_t i = 0; i < files.size(); ++i)
        finder.look(i, files[i].size(), [&](std::uint64_t offset, std::size_t length) {
            n_read += length;
            return std::span(files[i]).subspan(
                std::min<std::size_t>(offset, files[i].size()),
                std::min(length, files[i].size() - std::min<std::size_t>(offset, files[i].size())));
        });
    EXPECT_TRUE(finder.deeper().empty());
    EXPECT_EQ(finder.from_ns(), REALTIME_NS + (10 + 397) * S - TailFinder::MARGIN_NS);
    EXPECT_LT(n_read, files[0].size());
}

} // namespace
} // namespace collwire::stream
