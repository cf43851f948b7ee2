// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_connection_records.h"
#include "collwire/nccl_launch_records.h"
#include "collwire/record_kinds.h"
#include "correlate/stream/lockstep.h"
#include "correlate/stream/record_stream.h"
#include "correlate/stream/world.h"
#include "tests/support/capture_builder.h"
#include "tests/support/stream_capture.h"
#include "tests/support/stream_world.h"

namespace collwire::stream {
namespace {

using test::CaptureBuilder;
using test::COMM;
using test::make_record;
using test::node_of;
using test::reader_of;
using test::S;
using test::StreamWorld;

constexpr std::uint64_t CONNECTION = 0x2000;
constexpr std::uint64_t SHAPE = 0x3000;

std::vector<std::byte> some_capture() {
    CaptureBuilder capture;
    capture.add(node_of(1, 0, S));
    for (std::uint64_t i = 0; i < 40; ++i) {
        capture.add(make_record<cw_nccl_call>(CW_KIND_NCCL_CALL, S + i));
        if (i % 7 == 0)
            capture.end_block();
    }
    return capture.add_end(3 * S).bytes();
}

// Wherever a file is cut, or a byte is changed, the stream ends as the reader of whole files does.
TEST(RecordStream, EndsWhereTheReaderOfWholeFilesEnds) {
    const std::vector<std::byte> whole = some_capture();
    const auto compare = [](const std::vector<std::byte> &file, const std::string &what) {
        std::vector<std::uint64_t> expected, found;
        const auto summary = capture::read_capture(
            file, [&](const cw_header &header, auto) { expected.push_back(header.time_ns); });
        auto stream = RecordStream::open(reader_of(file));
        ASSERT_EQ(summary.ok(), stream.ok()) << what;
        if (!summary.ok()) {
            EXPECT_EQ(summary.failure().message, stream.failure().message);
            return;
        }
        LoadedBlock block;
        while (stream->load(block))
            stream->visit(block,
                          [&](const cw_header &header, auto) { found.push_back(header.time_ns); });
        EXPECT_EQ(found, expected) << what;
        EXPECT_EQ(stream->summary().describe(), summary->describe()) << what;
        EXPECT_EQ(stream->summary().records, summary->records);
        EXPECT_EQ(stream->summary().last_time_ns, summary->last_time_ns);
    };
    for (std::size_t bytes = 0; bytes <= whole.size(); bytes += bytes < 200 ? 1 : 7)
        compare({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes)},
                "cut at " + std::to_string(bytes));
    for (std::size_t at = 0; at < whole.size(); at += 3) {
        std::vector<std::byte> changed = whole;
        changed[at] ^= std::byte{0x10};
        compare(changed, "changed at " + std::to_string(at));
    }
}

TEST(RecordStream, AnErrorOfTheFileIsACut) {
    const std::vector<std::byte> whole = some_capture();
    const auto read = reader_of(whole);
    auto stream = RecordStream::open(
        [&](std::uint64_t offset_bytes, std::span<std::byte> into) -> Result<std::size_t> {
            if (offset_bytes > 400)
                return error(ErrorKind::Failed, "input/output error");
            return read(offset_bytes, into);
        });
    ASSERT_TRUE(stream.ok());
    LoadedBlock block;
    while (stream->load(block)) {
    }
    ASSERT_TRUE(stream->summary().cut);
    EXPECT_NE(stream->summary().cut->reason.find("input/output error"), std::string::npos);
}

TEST(RecordStream, ABlockCanBeSkipped) {
    auto stream = RecordStream::open(reader_of(some_capture()));
    LoadedBlock block;
    ASSERT_TRUE(stream->load(block));
    ASSERT_NE(stream->next(), nullptr);
    const std::uint64_t first_ns = stream->next()->first_time_ns;
    stream->skip();
    ASSERT_TRUE(stream->load(block));
    stream->visit(block,
                  [&](const cw_header &header, auto) { EXPECT_GT(header.time_ns, first_ns); });
}

// The node that is furthest behind comes next, by the nodes' realtime.
TEST(Lockstep, ReadsBlocksInTheOrderOfTheirTime) {
    Lockstep lockstep;
    for (std::uint64_t node = 0; node < 3; ++node) {
        CaptureBuilder capture;
        // Each has been up for another time.
        const std::uint64_t boot_ns = (node + 1) * 100 * S;
        for (std::uint64_t i = 0; i < 5; ++i) {
            auto record = node_of(node, 0, boot_ns + i * 3 * S + node * S);
            record.realtime_ns -= boot_ns;
            capture.add(record).end_block();
        }
        auto stream = RecordStream::open(reader_of(capture.bytes()));
        lockstep.add(std::move(*stream));
    }
    std::vector<std::uint64_t> times;
    for (std::size_t at; (at = lockstep.load()) != lockstep.size();) {
        lockstep.visit([&](const cw_header &header, auto) {
            times.push_back(header.time_ns - (at + 1) * 100 * S);
        });
    }
    EXPECT_EQ(times.size(), 15U);
    EXPECT_TRUE(std::is_sorted(times.begin() + 3, times.end()));
}

TEST_F(StreamWorld, AnOperationIsClosedWhenAllRanksAreDone) {
    for (std::uint32_t node = 0; node < 2; ++node)
        add_comm(node, 2 * S);
    for (std::uint32_t i = 0; i < 3; ++i) {
        call(0, (3 + i) * S, 10 + i);
        launch(0, (3 + i) * S + 1, {10 + i});
    }
    EXPECT_TRUE(operations_.empty());
    call(1, 4 * S, 10);
    launch(1, 4 * S + 1, {10});
    EXPECT_TRUE(operations_.empty());
    call(1, 5 * S, 11); // now the first launch is settled
    ASSERT_EQ(operations_.size(), 1U);
    EXPECT_EQ(operations_[0].count, 10U);
    EXPECT_EQ(operations_[0].last_rank, 1);
    EXPECT_EQ(operations_[0].first_call_ns, 1003 * S);
    EXPECT_EQ(operations_[0].last_call_ns, 1004 * S);
    EXPECT_EQ(seen(), (Seen{{2, 2}, {2, 1}, {1, 1}}));
    EXPECT_NE(operations_[1].lacks & LACKS_LAUNCH, 0);
    EXPECT_NE(operations_[2].lacks & LACKS_RANKS, 0);
}

TEST_F(StreamWorld, EqualCallsOfAGroupHaveTheirLaunchesInOrder) {
    add_comm(0, 2 * S);
    for (std::uint64_t i = 0; i < 3; ++i)
        call(0, 3 * S + i, 10);
    launch(0, 4 * S, {10, 10}, 0, 1);
    launch(0, 4 * S + 1, {10}, 0, 2);
    EXPECT_EQ(seen(), (Seen{{1, 1}, {1, 1}, {1, 1}}));
    EXPECT_EQ(operations_[0].last_launch_ns, 1004 * S);
    EXPECT_EQ(operations_[2].last_launch_ns, 1004 * S + 1);
}

// A launch of more than four tasks has them all in records of their own, before or after it.
TEST_F(StreamWorld, ManyTasksHaveRecordsOfTheirOwn) {
    add_comm(0, 2 * S);
    for (std::uint64_t is_before = 0; is_before < 2; ++is_before) {
        const std::uint64_t launch_ns = (4 + 10 * is_before) * S;
        for (std::uint32_t i = 0; i < 6; ++i)
            call(0, launch_ns - S + i, 10 + i);
        auto one = make_record<cw_nccl_launch>(CW_KIND_NCCL_LAUNCH, launch_ns);
        one.comm = COMM;
        one.plan = 5;
        one.n_tasks = 6;
        if (is_before == 0)
            add(0, one);
        for (std::uint16_t first = 0; first < 6; first += 4) {
            auto more = make_record<cw_nccl_launch_tasks>(CW_KIND_NCCL_LAUNCH_TASKS, launch_ns + 1);
            more.comm = COMM;
            more.plan = 5;
            more.launch_ns = launch_ns;
            more.first = first;
            more.n = std::min<std::uint16_t>(4, static_cast<std::uint16_t>(6 - first));
            for (std::uint32_t i = 0; i < more.n; ++i)
                more.tasks[i] = {10 + first + i, 100 + first + i};
            add(0, more);
        }
        if (is_before != 0)
            add(0, one);
    }
    EXPECT_EQ(seen(), Seen(12, {1, 1}));
    EXPECT_EQ(world_.counts().unmatched, 0U);
}

// Two calls are captured, then equal ones are launched at once, then the graph plays three times.
TEST_F(StreamWorld, CapturedCallsAreLaunchedByTheirGraph) {
    add_comm(0, 2 * S);
    call(0, 3 * S, 10);
    call(0, 3 * S + 1, 11);
    call(0, 4 * S, 10);
    launch(0, 4 * S + 1, {10});
    for (std::uint64_t i = 0; i < 3; ++i)
        launch(0, (5 + i) * S, {10, 11}, CW_NCCL_LAUNCH_GRAPH, 2);
    EXPECT_EQ(seen(), (Seen{{1, 1}, {1, 1}, {1, 1}}));
    EXPECT_EQ(operations_[0].last_launch_ns, 1005 * S);
    EXPECT_EQ(operations_[2].last_launch_ns, 1004 * S + 1);
    EXPECT_EQ(world_.counts().replays, 2U);
    EXPECT_EQ(world_.counts().unmatched, 0U);
}

// The recorder reads ends and creations from another ring buffer than calls.
TEST_F(StreamWorld, TimesDecideAtAnAddressThatIsUsedAgain) {
    add_comm(0, 2 * S);
    call(0, 3 * S, 10);
    end_comm(0, 4 * S);
    call(0, 4 * S - 1, 11);
    call(0, 4 * S + 3, 12); // its communicator's record comes later
    add_comm(0, 4 * S + 2, 8);
    world_.flush();
    ASSERT_EQ(operations_.size(), 3U);
    std::sort(operations_.begin(), operations_.end(),
              [](const Operation &a, const Operation &b) { return a.count < b.count; });
    EXPECT_EQ(operations_[0].number, 0U);
    EXPECT_EQ(operations_[1].number, 1U);
    EXPECT_EQ(operations_[2].number, 0U);
    EXPECT_EQ(world_.counts().orphans, 0U);
}

TEST_F(StreamWorld, ACaptureThatIsThereTwiceCountsOnce) {
    add(2, node_of(0, 0, S));
    EXPECT_TRUE(world_.is_left_out(2));
    add(3, node_of(0, 1, S));
    EXPECT_FALSE(world_.is_left_out(3));
    add_comm(0, 2 * S);
    call(0, 3 * S, 10);
    auto again = make_record<cw_nccl_call>(CW_KIND_NCCL_CALL, 3 * S);
    again.comm = COMM;
    add(2, again);
    again.header.time_ns = 4 * S; // of the next segment
    again.count = 11;
    again.func = CW_NCCL_ALL_REDUCE;
    add(3, again);
    EXPECT_EQ(seen(), (Seen{{1, 0}, {1, 0}}));
}

// The first launch with NCCL's own count gives the number of the calls before it.
TEST_F(StreamWorld, ALateRankHasItsNumbersFromNcclsCount) {
    auto comm = make_record<cw_nccl_comm>(CW_KIND_NCCL_COMM, 2 * S);
    comm.comm = COMM;
    comm.n_ranks = comm.n_nodes = 2;
    add(0, comm);
    launch(0, 3 * S, {9}); // of a call before the recording
    call(0, 4 * S, 10);
    call(0, 4 * S + 1, 11);
    auto one = make_record<cw_nccl_launch>(CW_KIND_NCCL_LAUNCH, 4 * S + 2);
    one.comm = COMM;
    one.n_tasks = 2;
    one.tasks[0] = {10, 1};
    one.tasks[1] = {11, 2};
    one.flags = CW_NCCL_LAUNCH_LAUNCHED;
    one.launched = 102;
    add(0, one);
    EXPECT_TRUE(operations_.empty());
    call(0, 5 * S, 12);
    world_.flush();
    ASSERT_EQ(operations_.size(), 3U);
    for (std::uint32_t i = 0; i < 3; ++i) {
        EXPECT_EQ(operations_[i].number, 100U + i);
        EXPECT_EQ(operations_[i].count, 10U + i);
        EXPECT_EQ(operations_[i].lacks & NUMBER_GUESSED, 0);
    }
}

// A late rank without a launch, or with graphs alone, does not wait for its number for ever.
TEST_F(StreamWorld, WhatWaitsForANumberIsBounded) {
    for (std::uint32_t node = 0; node < 2; ++node) {
        auto comm = make_record<cw_nccl_comm>(CW_KIND_NCCL_COMM, 2 * S);
        comm.tgid = node;
        comm.comm = COMM;
        comm.comm_hash = 7 + node;
        comm.n_ranks = 1;
        add(node, comm);
    }
    for (std::uint64_t i = 0; i < RankTrack::MAX_EARLY; ++i) {
        call(0, 3 * S + i, 10);
        launch(1, 3 * S + i, {10}, CW_NCCL_LAUNCH_GRAPH);
    }
    EXPECT_EQ(world_.counts().replays, 0U);
    EXPECT_TRUE(operations_.empty());
    call(0, 4 * S, 10);
    launch(1, 4 * S, {10}, CW_NCCL_LAUNCH_GRAPH);
    world_.flush();
    EXPECT_EQ(operations_.size(), RankTrack::MAX_EARLY + 1);
    EXPECT_EQ(world_.counts().replays, RankTrack::MAX_EARLY);
    EXPECT_TRUE(std::all_of(operations_.begin(), operations_.end(), [](const Operation &one) {
        return (one.lacks & NUMBER_GUESSED) != 0;
    }));
}

// A rank that never comes keeps no more than the horizon open.
TEST_F(StreamWorld, MemoryIsBoundedWhereARankIsMissing) {
    add_comm(0, 2 * S);
    const std::uint64_t n = OperationTracker::HORIZON_OPERATIONS + 100;
    for (std::uint64_t i = 0; i < n; ++i) {
        call(0, 3 * S + i, 10);
        launch(0, 3 * S + i, {10});
    }
    EXPECT_EQ(operations_.size(), 100U);
    call(0, 3 * S + OperationTracker::HORIZON_NS + n, 10);
    EXPECT_EQ(operations_.size(), n);
    EXPECT_EQ(seen().size(), n + 1);
    EXPECT_TRUE(std::all_of(operations_.begin(), operations_.end(),
                            [](const Operation &one) { return (one.lacks & LACKS_RANKS) != 0; }));
}

TEST_F(StreamWorld, BytesAreThoseOfTheOperationsThatSend) {
    add_comm(0, 2 * S);
    auto task = make_record<cw_nccl_shape_task>(CW_KIND_NCCL_SHAPE_TASK, 3 * S);
    task.shape = SHAPE;
    task.func = task.api_func = CW_NCCL_SEND;
    task.protocol = CW_NCCL_SIMPLE;
    task.root = 1;
    task.bytes = 1 << 20;
    auto ops = make_record<cw_nccl_shape_ops>(CW_KIND_NCCL_SHAPE_OPS, 3 * S);
    ops.shape = SHAPE;
    ops.n_ops = 1;
    ops.n = 1;
    ops.ops[0].connection = CONNECTION;
    ops.ops[0].pattern = CW_NCCL_PATTERN_SEND;
    ops.ops[0].func = CW_NCCL_SEND;
    ops.ops[0].protocol = CW_NCCL_SIMPLE;
    ops.ops[0].peer = 1;
    ops.ops[0].nsteps = 8;
    ops.ops[0].chunk_steps = ops.ops[0].slice_steps = 1;
    ops.ops[0].chunk_bytes = 1 << 17;
    ops.ops[0].nbytes = 1 << 17;
    auto connection = make_record<cw_nccl_connection>(CW_KIND_NCCL_CONNECTION, 3 * S);
    connection.connection = CONNECTION;
    connection.transport = CW_NCCL_TRANSPORT_IB;
    connection.flags = CW_NCCL_CONNECTION_SEND;
    auto image = make_record<cw_nccl_image>(CW_KIND_NCCL_IMAGE, S);
    image.version = 22809;
    auto one = make_record<cw_nccl_call>(CW_KIND_NCCL_CALL, 4 * S);
    one.comm = COMM;
    one.func = CW_NCCL_SEND;
    one.root = 1;
    one.count = 1 << 20;
    auto launch = make_record<cw_nccl_launch>(CW_KIND_NCCL_LAUNCH, 4 * S + 1);
    launch.comm = COMM;
    launch.shape = SHAPE;
    launch.n_tasks = 1;
    add(0, image);
    end_comm(0, S);
    add_comm(0, 2 * S);
    // Of a communicator before: its address is used again, in the other direction.
    auto earlier = make_record<cw_nccl_connection>(CW_KIND_NCCL_CONNECTION, S);
    earlier.connection = CONNECTION;
    earlier.transport = CW_NCCL_TRANSPORT_IB;
    add(0, earlier);
    add(0, one);
    add(0, launch);
    // What a launch needs may come after it.
    add(0, task);
    add(0, ops);
    auto next = one;
    next.header.time_ns = 5 * S;
    add(0, next); // settles the launch before
    add(0, connection);
    launch.header.time_ns = 5 * S + 1;
    add(0, launch);
    world_.flush();
    ASSERT_EQ(operations_.size(), 2U);
    EXPECT_EQ(operations_[1].payload_bytes, 1U << 20);
    operations_.pop_back();
    ASSERT_EQ(operations_.size(), 1U);
    EXPECT_EQ(operations_[0].source, 0);
    EXPECT_EQ(operations_[0].destination, 1);
    EXPECT_EQ(operations_[0].payload_bytes, 1U << 20);
    EXPECT_EQ(operations_[0].messages, 8U);
    EXPECT_EQ(operations_[0].lacks & LACKS_BYTES, 0);
}

} // namespace
} // namespace collwire::stream
