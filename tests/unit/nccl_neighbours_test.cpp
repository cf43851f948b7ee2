// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "collwire/nccl_launch_records.h"
#include "correlate/nccl/neighbours.h"

namespace collwire::nccl {
namespace {

cw_nccl_op op_of(std::uint8_t pattern) {
    cw_nccl_op op{};
    op.pattern = pattern;
    op.root = 7;
    return op;
}

TEST(NcclNeighbours, OfAnOperationThatDoesNotSay) {
    Channel channel;
    channel.record.ring_prev = 1;
    channel.record.ring_next = 2;
    channel.record.tree_up = -1;
    channel.record.tree_down[0] = 3;
    channel.record.tree_down[1] = channel.record.tree_down[2] = -1;
    for (const bool is_send : {false, true}) {
        const std::int32_t of_ring = is_send ? 2 : 1;
        EXPECT_EQ(neighbour_of(&channel, nullptr, op_of(CW_NCCL_PATTERN_RING), is_send), of_ring);
        EXPECT_EQ(neighbour_of(&channel, nullptr, op_of(CW_NCCL_PATTERN_RING_TWICE), is_send),
                  of_ring);
        EXPECT_EQ(neighbour_of(&channel, nullptr, op_of(CW_NCCL_PATTERN_PIPELINE_FROM), is_send),
                  of_ring);
        EXPECT_EQ(neighbour_of(&channel, nullptr, op_of(CW_NCCL_PATTERN_TREE_UP_DOWN), is_send), 3);
        EXPECT_EQ(neighbour_of(&channel, nullptr, op_of(CW_NCCL_PATTERN_NVLS), is_send), -1);
        EXPECT_EQ(neighbour_of(nullptr, nullptr, op_of(CW_NCCL_PATTERN_RING), is_send), -1);
    }
    EXPECT_EQ(neighbour_of(nullptr, nullptr, op_of(CW_NCCL_PATTERN_SEND), true), 7);
    EXPECT_EQ(neighbour_of(nullptr, nullptr, op_of(CW_NCCL_PATTERN_RECV), false), 7);
    channel.record.tree_up = 5;
    EXPECT_EQ(neighbour_of(&channel, nullptr, op_of(CW_NCCL_PATTERN_TREE_UP), true), -1) << "or 3";
}

TEST(NcclNeighbours, InTheTreesOfNvls) {
    const cw_nccl_nvls nvls{
        .tree_up = {-1, 4},
        .tree_down = {4, -1, 8, -1},
    };
    cw_nccl_op op = op_of(CW_NCCL_PATTERN_NVLS_TREE);
    EXPECT_EQ(neighbour_of(nullptr, &nvls, op, true), 4);
    op.channel = 1;
    EXPECT_EQ(neighbour_of(nullptr, &nvls, op, true), -1) << "4 or 8";
    op.channel = 2;
    EXPECT_EQ(neighbour_of(nullptr, &nvls, op, false), 4);
    EXPECT_EQ(neighbour_of(nullptr, nullptr, op, false), -1);
}

TEST(NcclNeighbours, NvlsOfALife) {
    CommStream stream;
    for (const std::uint64_t time_ns : {5U, 15U, 25U})
        stream.nvls.emplace_back().header.time_ns = time_ns;
    Instance instance;
    instance.begin_ns = 10;
    instance.end_ns = 20;
    ASSERT_NE(nvls_of(stream, instance), nullptr);
    EXPECT_EQ(nvls_of(stream, instance)->header.time_ns, 15U);
    instance.begin_ns = 16;
    EXPECT_EQ(nvls_of(stream, instance), nullptr);
    instance.end_ns = 0;
    EXPECT_EQ(nvls_of(stream, instance)->header.time_ns, 25U);
    stream.nvls.clear();
    EXPECT_EQ(nvls_of(stream, instance), nullptr);
}

TEST(NcclNeighbours, ChannelsOfALife) {
    CommStream stream;
    for (const std::uint64_t time_ns : {5U, 15U, 18U, 25U}) {
        Channel channel;
        channel.time_ns = time_ns;
        channel.record.channel = time_ns == 18 ? 1 : 0;
        stream.channels.push_back(channel);
    }
    Instance instance;
    instance.begin_ns = 10;
    instance.end_ns = 20;
    ASSERT_NE(channel_of(stream, instance, 0), nullptr);
    EXPECT_EQ(channel_of(stream, instance, 0)->time_ns, 15U);
    EXPECT_EQ(channel_of(stream, instance, 2), nullptr);
    instance.end_ns = 0;
    EXPECT_EQ(channel_of(stream, instance, 0)->time_ns, 25U);
    // It is asked for each operation: repeated records are not searched.
    for (std::uint64_t time_ns = 30; time_ns < 5000; ++time_ns) {
        stream.channels.emplace_back().time_ns = time_ns;
        stream.channels.back().record.channel = 2;
    }
    EXPECT_EQ(channel_of(stream, instance, 0), nullptr);
    EXPECT_EQ(channel_of(stream, instance, 2)->time_ns, 4999U);
}

} // namespace
} // namespace collwire::nccl
