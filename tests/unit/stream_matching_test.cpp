// SPDX-License-Identifier: Apache-2.0
// Which call a launch is of.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "collwire/nccl_launch_records.h"
#include "collwire/node_records.h"
#include "collwire/record_kinds.h"
#include "correlate/stream/rank_track.h"
#include "tests/support/capture_builder.h"
#include "tests/support/stream_world.h"

namespace collwire::stream {
namespace {

using test::COMM;
using test::make_record;
using test::S;

class StreamMatching : public test::StreamWorld {
protected:
    void call_all_to_all(std::uint64_t time_ns, std::uint32_t count) {
        auto one = make_record<cw_nccl_call>(CW_KIND_NCCL_CALL, time_ns);
        one.comm = COMM;
        one.func = CW_NCCL_ALL_TO_ALL;
        one.count = one.arguments_hash = count;
        add(0, one);
    }
    // A launch of a send and a receive of the other rank for each of `counts`, which NCCL makes of
    // AlltoAll. Its tasks have the hashes of these.
    void launch_parts(std::uint64_t time_ns, const std::vector<std::uint32_t> &counts,
                      std::uint8_t flags = 0) {
        auto one = make_record<cw_nccl_launch>(CW_KIND_NCCL_LAUNCH, time_ns);
        one.comm = COMM;
        one.shape = ++shapes_;
        one.plan = shapes_;
        one.flags = flags;
        for (const std::uint32_t count : counts)
            for (const std::uint8_t func : {CW_NCCL_SEND, CW_NCCL_RECV}) {
                auto task = make_record<cw_nccl_shape_task>(CW_KIND_NCCL_SHAPE_TASK, time_ns - 1);
                task.shape = shapes_;
                task.func = func;
                task.api_func = CW_NCCL_ALL_TO_ALL;
                task.root = 1;
                task.bytes = count;
                task.index = one.n_tasks;
                add(0, task);
                one.tasks[one.n_tasks] = {0xfffff000U + func, 100U + one.n_tasks};
                ++one.n_tasks;
            }
        auto ops = make_record<cw_nccl_shape_ops>(CW_KIND_NCCL_SHAPE_OPS, time_ns - 1);
        ops.shape = shapes_;
        add(0, ops);
        add(0, one);
    }

private:
    std::uint64_t shapes_ = 0;
};

// Of those with equal arguments, the first one has the first launch.
TEST_F(StreamMatching, EachAllToAllOfAGroupHasItsOwnParts) {
    add_comm(0, 2 * S);
    call_all_to_all(3 * S, 10);
    call_all_to_all(3 * S + 1, 20);
    call_all_to_all(3 * S + 2, 10);
    launch_parts(4 * S, {20, 10});
    launch_parts(5 * S, {10});
    EXPECT_EQ(seen(), (Seen{{1, 2}, {1, 2}, {1, 2}}));
    EXPECT_EQ(operations_[0].last_launch_ns, 1004 * S);
    EXPECT_EQ(operations_[2].last_launch_ns, 1005 * S);
    EXPECT_EQ(world_.counts().unmatched, 0U);
}

TEST_F(StreamMatching, ACapturedAllToAllHasThePartsOfItsGraph) {
    add_comm(0, 2 * S);
    call_all_to_all(3 * S, 10);
    call_all_to_all(3 * S + 1, 10);
    call_all_to_all(4 * S, 10);
    launch_parts(4 * S + 1, {10});
    launch_parts(5 * S, {10, 10}, CW_NCCL_LAUNCH_GRAPH);
    EXPECT_EQ(seen(), (Seen{{1, 2}, {1, 2}, {1, 2}}));
    EXPECT_EQ(operations_[0].last_launch_ns, 1005 * S);
    EXPECT_EQ(operations_[1].last_launch_ns, 1005 * S);
    EXPECT_EQ(operations_[2].last_launch_ns, 1004 * S + 1);
    EXPECT_EQ(world_.counts().unmatched, 0U);
}

// The peer of a part is read from a file.
TEST_F(StreamMatching, APartWithARankThatIsNotThereIsOfNoCall) {
    add_comm(0, 2 * S);
    call_all_to_all(3 * S, 10);
    auto task = make_record<cw_nccl_shape_task>(CW_KIND_NCCL_SHAPE_TASK, 3 * S);
    task.shape = 9;
    task.func = CW_NCCL_SEND;
    task.api_func = CW_NCCL_ALL_TO_ALL;
    task.bytes = 10;
    task.root = 1 << 30;
    add(0, task);
    auto ops = make_record<cw_nccl_shape_ops>(CW_KIND_NCCL_SHAPE_OPS, 3 * S);
    ops.shape = 9;
    add(0, ops);
    auto one = make_record<cw_nccl_launch>(CW_KIND_NCCL_LAUNCH, 4 * S);
    one.comm = COMM;
    one.shape = 9;
    one.n_tasks = 1;
    add(0, one);
    EXPECT_EQ(seen(), (Seen{{1, 0}}));
    EXPECT_EQ(world_.counts().unmatched, 1U);
}

// Returns of calls are recorded where their probe is.
TEST_F(StreamMatching, ACallThatFailedIsNone) {
    auto probe = make_record<cw_probe>(CW_KIND_PROBE, S);
    probe.probe_kind = CW_PROBE_URETPROBE;
    test::set_text(probe.function, "ncclEnqueueCheck");
    add(0, probe);
    add_comm(0, 2 * S);
    const auto returned = [&](std::uint64_t call_ns, std::uint32_t result) {
        auto back = make_record<cw_nccl_return>(CW_KIND_NCCL_RETURN, call_ns + 1);
        back.comm = COMM;
        back.call_ns = call_ns;
        back.result = result;
        add(0, back);
    };
    constexpr std::uint32_t INVALID_ARGUMENT = 4, IN_PROGRESS = 7;
    call(0, 10 * S, 10);
    returned(10 * S, INVALID_ARGUMENT);
    call(0, 11 * S, 11);
    returned(11 * S, IN_PROGRESS);
    call(0, 12 * S, 12);
    returned(12 * S, INVALID_ARGUMENT);
    call(0, 13 * S, 13);
    returned(13 * S, 0);
    call(0, 14 * S, 14); // does not return
    ASSERT_EQ(seen().size(), 3U);
    EXPECT_EQ(operations_[0].count, 11U);
    EXPECT_EQ(operations_[1].count, 13U);
    EXPECT_EQ(operations_[2].count, 14U);
}

// The first group of a communicator may be large: an exchange of many ranks.
TEST_F(StreamMatching, TheFirstGroupMayHaveManyCalls) {
    constexpr std::uint32_t CALLS = 10 * RankTrack::MAX_WAITING_LOCAL;
    add_comm(0, 2 * S);
    for (std::uint32_t i = 0; i < CALLS; ++i)
        call(0, 3 * S + i, 10 + i);
    for (std::uint32_t i = 0; i < CALLS; ++i)
        launch(0, 4 * S + i, {10 + i});
    EXPECT_EQ(seen(), Seen(CALLS, {1, 1}));
}

// A communicator of one node never launches anything that is recorded.
TEST_F(StreamMatching, CallsOfACommunicatorThatNeverLaunchesAreFewInMemory) {
    constexpr std::uint64_t CALLS = 10 * RankTrack::MAX_WAITING_LOCAL;
    for (std::uint32_t node = 0; node < 2; ++node)
        add_comm(node, 2 * S);
    for (std::uint64_t i = 0; i < CALLS; ++i)
        for (std::uint32_t node = 0; node < 2; ++node)
            call(node, 3 * S + 2 * i * RankTrack::GROUP_NS, 10);
    EXPECT_EQ(operations_.size(), CALLS - RankTrack::MAX_WAITING_LOCAL);
}

} // namespace
} // namespace collwire::stream
