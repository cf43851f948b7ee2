// SPDX-License-Identifier: Apache-2.0
// What must hold for every ring and tree: what is sent is received, and sums follow from algebra.
#include "correlate/nccl/local_edges.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "correlate/nccl/channel_shares.h"
#include "correlate/nccl/protocol_bytes.h"

namespace collwire::nccl {
namespace {

constexpr std::uint8_t FLOAT_32 = 7;

struct Node {
    std::uint32_t version = 23203;
    std::int32_t n_ranks = 4;
    std::vector<std::vector<cw_nccl_channel>> channels; // by rank
};

// Each channel has a ring in another order, and a tree in which each rank is below the one before.
Node node_of(std::int32_t n_ranks, std::uint32_t n_channels, std::mt19937 &random) {
    Node node{.n_ranks = n_ranks, .channels = {}};
    node.channels.resize(static_cast<std::size_t>(n_ranks));
    for (std::uint32_t c = 0; c < n_channels; ++c) {
        std::vector<std::int32_t> order(static_cast<std::size_t>(n_ranks));
        std::iota(order.begin(), order.end(), 0);
        std::shuffle(order.begin() + 1, order.end(), random);
        for (std::size_t i = 0; i < order.size(); ++i) {
            cw_nccl_channel channel{};
            channel.channel = c;
            channel.ring_index = static_cast<std::int32_t>(i);
            channel.ring_prev = order[(i + order.size() - 1) % order.size()];
            channel.ring_next = order[(i + 1) % order.size()];
            channel.tree_up = i == 0 ? -1 : order[i - 1];
            channel.tree_down[0] = i + 1 == order.size() ? -1 : order[i + 1];
            channel.tree_down[1] = channel.tree_down[2] = -1;
            node.channels[static_cast<std::size_t>(order[i])].push_back(channel);
        }
    }
    return node;
}

LocalComm comm_of(const Node &node, std::int32_t rank) {
    return {.version = node.version,
            .n_ranks = node.n_ranks,
            .rank = rank,
            .channels = node.channels[static_cast<std::size_t>(rank)]};
}

cw_nccl_shape_task task_of(std::uint8_t func, std::uint8_t algorithm, std::uint8_t protocol,
                           std::uint64_t count, std::int32_t root = 0) {
    cw_nccl_shape_task task{};
    task.func = task.api_func = func;
    task.algorithm = algorithm;
    task.protocol = protocol;
    task.count = count;
    task.datatype = FLOAT_32;
    task.bytes = count * 4;
    task.root = root;
    return task;
}

// The channels that NCCL would put into the task if it allowed it all.
void set_channels(const Node &node, cw_nccl_shape_task &task) {
    const auto n = static_cast<std::uint32_t>(node.channels.front().size());
    const auto shares = share_out({.version = node.version, .n_ranks = node.n_ranks, .channels = n},
                                  std::span(&task, 1), n);
    ASSERT_EQ(shares.size(), 1U);
    task.n_channels = static_cast<std::uint8_t>(shares.front().size());
}

struct Sums {
    std::uint64_t payload_bytes = 0, data_bytes = 0;
    std::map<std::int32_t, std::uint64_t> sent; // data, by rank
};

// Of all ranks. Fails unless both ends of each edge agree.
Sums sums_of(const Node &node, const cw_nccl_shape_task &task) {
    using Key = std::tuple<std::int32_t, std::int32_t, std::uint8_t>;
    std::map<Key, LocalEdge> sent, received;
    Sums sums;
    for (std::int32_t rank = 0; rank < node.n_ranks; ++rank) {
        const auto modelled = model_launch(comm_of(node, rank), std::span(&task, 1));
        EXPECT_EQ(modelled.front().reason, NotModelled::No);
        for (const LocalEdge &edge : modelled.front().edges) {
            EXPECT_TRUE(edge.sender == rank || edge.receiver == rank);
            auto &ends = edge.sender == rank ? sent : received;
            EXPECT_TRUE(ends.emplace(Key(edge.sender, edge.receiver, edge.channel), edge).second);
            if (edge.sender != rank)
                continue;
            sums.payload_bytes += edge.payload_bytes;
            sums.data_bytes += edge.data_bytes;
            sums.sent[rank] += edge.data_bytes;
        }
    }
    EXPECT_EQ(sent, received);
    return sums;
}

TEST(NcclLocalEdges, SumsFollowFromAlgebra) {
    std::mt19937 random(20261127);
    const auto any = [&](std::uint64_t most) {
        return std::uniform_int_distribution<std::uint64_t>(1, most)(random);
    };
    for (int i = 0; i < 400; ++i) {
        const auto n = static_cast<std::int32_t>(any(15)) + 1;
        const auto ranks = static_cast<std::uint64_t>(n);
        const Node node = node_of(n, static_cast<std::uint32_t>(any(32)), random);
        const std::uint64_t count = any(std::uint64_t{1} << any(23));
        const std::uint64_t bytes = count * 4;
        const auto protocol = static_cast<std::uint8_t>(any(3) - 1);
        SCOPED_TRACE(testing::Message()
                     << n << " ranks, " << count << " elements, protocol " << int{protocol});
        const auto data_of = [&](std::uint8_t func, std::uint8_t algorithm = CW_NCCL_RING) {
            cw_nccl_shape_task task = task_of(func, algorithm, protocol, count,
                                              static_cast<std::int32_t>(any(ranks)) - 1);
            set_channels(node, task);
            const Sums sums = sums_of(node, task);
            EXPECT_GE(sums.payload_bytes, protocol == CW_NCCL_LL      ? 2 * sums.data_bytes
                                          : protocol == CW_NCCL_LL128 ? sums.data_bytes * 16 / 15
                                                                      : sums.data_bytes);
            if (protocol == CW_NCCL_SIMPLE) {
                EXPECT_EQ(sums.payload_bytes, sums.data_bytes);
            }
            return sums.data_bytes;
        };
        EXPECT_EQ(data_of(CW_NCCL_ALL_REDUCE), 2 * bytes * (ranks - 1));
        EXPECT_EQ(data_of(CW_NCCL_ALL_REDUCE, CW_NCCL_TREE), 2 * bytes * (ranks - 1));
        EXPECT_EQ(data_of(CW_NCCL_ALL_GATHER), ranks * bytes * (ranks - 1));
        EXPECT_EQ(data_of(CW_NCCL_REDUCE_SCATTER), ranks * bytes * (ranks - 1));
        EXPECT_EQ(data_of(CW_NCCL_BROADCAST), bytes * (ranks - 1));
        EXPECT_EQ(data_of(CW_NCCL_REDUCE), bytes * (ranks - 1));
    }
}

TEST(NcclLocalEdges, EachRankSendsItsShareOfAnAllGather) {
    std::mt19937 random(1);
    const Node node = node_of(8, 4, random);
    cw_nccl_shape_task task = task_of(CW_NCCL_ALL_GATHER, CW_NCCL_RING, CW_NCCL_SIMPLE, 1 << 20);
    set_channels(node, task);
    for (const auto &[rank, bytes] : sums_of(node, task).sent)
        EXPECT_EQ(bytes, 7U * (4U << 20U));
}

TEST(NcclLocalEdges, WhatIsNotModelledHasAReasonAndNoBytes) {
    std::mt19937 random(1);
    Node node = node_of(4, 2, random);
    const auto reason_of = [&](const cw_nccl_shape_task &task) {
        const auto modelled = model_launch(comm_of(node, 0), std::span(&task, 1));
        EXPECT_TRUE(modelled.front().edges.empty());
        EXPECT_FALSE(name_of(modelled.front().reason).empty());
        return modelled.front().reason;
    };
    cw_nccl_shape_task task = task_of(CW_NCCL_ALL_REDUCE, CW_NCCL_RING, CW_NCCL_SIMPLE, 1024);
    task.n_channels = 1;
    for (const auto &[algorithm, reason] :
         {std::pair{CW_NCCL_NVLS, NotModelled::Nvls},
          std::pair{CW_NCCL_NVLS_TREE, NotModelled::NvlsTree},
          std::pair{CW_NCCL_COLLNET_DIRECT, NotModelled::CollNet},
          std::pair{CW_NCCL_COLLNET_CHAIN, NotModelled::CollNet}}) {
        task.algorithm = static_cast<std::uint8_t>(algorithm);
        EXPECT_EQ(reason_of(task), reason);
    }
    task.algorithm = CW_NCCL_RING;
    task.n_channels = 0; // a symmetric kernel
    EXPECT_EQ(reason_of(task), NotModelled::OtherKernel);
    task.func = CW_NCCL_BROADCAST; // of a group
    EXPECT_EQ(reason_of(task), NotModelled::GroupedBroadcast);
    task.func = CW_NCCL_ALL_REDUCE;
    task.n_channels = 9; // NCCL would divide it among fewer
    EXPECT_EQ(reason_of(task), NotModelled::Channels);
    task.n_channels = 1;
    task.protocol = CW_NCCL_PROTOCOL_UNKNOWN;
    EXPECT_EQ(reason_of(task), NotModelled::Task);
    node.version = 22304;
    EXPECT_EQ(reason_of(task), NotModelled::Version);
}

TEST(NcclLocalEdges, ARankWithoutItsRingIsNotModelled) {
    cw_nccl_shape_task task = task_of(CW_NCCL_ALL_REDUCE, CW_NCCL_RING, CW_NCCL_SIMPLE, 1024);
    task.n_channels = 1;
    const auto modelled =
        model_launch({.version = 23203, .n_ranks = 4, .rank = 0}, std::span(&task, 1));
    EXPECT_EQ(modelled.front().reason, NotModelled::Topology);
}

TEST(NcclLocalEdges, SendsAreSimpleBeyondTheThresholdOfTheirChannels) {
    std::mt19937 random(1);
    const Node node = node_of(2, 2, random);
    const auto payload_of = [&](std::uint64_t bytes, std::uint8_t channels) {
        cw_nccl_shape_task task = task_of(CW_NCCL_SEND, CW_NCCL_ALGORITHM_UNKNOWN,
                                          CW_NCCL_PROTOCOL_UNKNOWN, bytes / 4, 1);
        task.bytes = bytes;
        task.n_channels = channels;
        const auto modelled = model_launch(comm_of(node, 0), std::span(&task, 1));
        EXPECT_EQ(modelled.front().edges.size(), 1U);
        return modelled.front().edges.front().payload_bytes;
    };
    EXPECT_EQ(payload_of(16384, 1), 2U * 16384);
    EXPECT_EQ(payload_of(16385, 1), 16385U);
    EXPECT_EQ(payload_of(16385, 2), 16U * 2049);
    EXPECT_EQ(payload_of(32769, 2), 32769U);
    EXPECT_EQ(payload_of(0, 1), 0U);
}

TEST(NcclLocalEdges, BeforeChannelsAreRecordedASendMayHaveEitherProtocol) {
    std::mt19937 random(1);
    Node node = node_of(2, 2, random);
    node.version = 22403;
    cw_nccl_shape_task task =
        task_of(CW_NCCL_SEND, CW_NCCL_ALGORITHM_UNKNOWN, CW_NCCL_PROTOCOL_UNKNOWN, 5000, 1);
    LocalComm comm = comm_of(node, 0);
    comm.p2p_channels = 2;
    EXPECT_EQ(model_launch(comm, std::span(&task, 1)).front().reason, NotModelled::Protocol);
    comm.p2p_channels = 1;
    EXPECT_EQ(model_launch(comm, std::span(&task, 1)).front().edges.front().payload_bytes, 20000U);
}

TEST(NcclLocalEdges, TheThresholdOfASendIsOfAPeersChannelsBefore229AndThenOfItsOwn) {
    std::mt19937 random(1);
    Node node = node_of(2, 2, random);
    cw_nccl_shape_task task =
        task_of(CW_NCCL_SEND, CW_NCCL_ALGORITHM_UNKNOWN, CW_NCCL_PROTOCOL_UNKNOWN, 32767, 1);
    task.bytes = 32767;
    task.n_channels = 1;
    const auto payload = [&](std::uint32_t version, std::uint32_t per_peer) {
        node.version = version;
        LocalComm comm = comm_of(node, 0);
        comm.p2p_channels_per_peer = per_peer;
        const auto modelled = model_launch(comm, std::span(&task, 1));
        return modelled.front().reason == NotModelled::No
                   ? modelled.front().edges.front().payload_bytes
                   : 0;
    };
    EXPECT_EQ(payload(22809, 2), 65536U);
    EXPECT_EQ(payload(22809, 1), 32767U);
    EXPECT_EQ(payload(22809, 0), 0U) << "either protocol";
    EXPECT_EQ(payload(22902, 2), 32767U);
    task.n_channels = 2;
    EXPECT_EQ(payload(22809, 0), 65536U);
    EXPECT_EQ(payload(22902, 0), 65536U);
}

TEST(NcclLocalEdges, ACopyToItselfIsNoEdge) {
    std::mt19937 random(1);
    const Node node = node_of(2, 1, random);
    cw_nccl_shape_task task =
        task_of(CW_NCCL_SEND, CW_NCCL_ALGORITHM_UNKNOWN, CW_NCCL_PROTOCOL_UNKNOWN, 100, 0);
    const auto modelled = model_launch(comm_of(node, 0), std::span(&task, 1));
    EXPECT_EQ(modelled.front().reason, NotModelled::No);
    EXPECT_TRUE(modelled.front().edges.empty());
}

TEST(NcclLocalEdges, AKnownShareOfAChannelDecidesAmongDivisions) {
    std::mt19937 random(1);
    Node node = node_of(4, 4, random);
    node.version = 22403; // tasks do not contain their channels
    std::vector<cw_nccl_shape_task> tasks(
        2, task_of(CW_NCCL_ALL_REDUCE, CW_NCCL_RING, CW_NCCL_LL, 100001));
    const ShareRules rules{.version = node.version, .n_ranks = 4, .channels = 4};
    EXPECT_EQ(model_launch(comm_of(node, 0), tasks).front().reason, NotModelled::Channels);
    const auto shares = share_out(rules, tasks, 3);
    const std::vector<KnownShare> known{
        {0, static_cast<std::uint8_t>(shares[0][0].channel), shares[0][0].bytes}};
    const auto modelled = model_launch(comm_of(node, 0), tasks, known);
    ASSERT_EQ(modelled.front().reason, NotModelled::No);
    std::uint64_t data_bytes = 0;
    for (const LocalEdge &edge : modelled.front().edges)
        data_bytes += edge.sender == 0 ? edge.data_bytes : 0;
    EXPECT_GT(data_bytes, 0U);
}

TEST(NcclChannelShares, DivideAllOfTheBytes) {
    std::mt19937 random(7);
    const auto any = [&](std::uint64_t most) {
        return std::uniform_int_distribution<std::uint64_t>(1, most)(random);
    };
    for (int i = 0; i < 2000; ++i) {
        const ShareRules rules{.version = i % 2 == 0 ? 22403U : 23203U,
                               .n_ranks = static_cast<std::int32_t>(any(64)) + 1,
                               .channels = static_cast<std::uint32_t>(any(64))};
        std::vector<cw_nccl_shape_task> tasks;
        for (std::uint64_t n = any(4); n > 0; --n)
            tasks.push_back(task_of(static_cast<std::uint8_t>(any(5) - 1), CW_NCCL_RING,
                                    static_cast<std::uint8_t>(any(3) - 1),
                                    any(std::uint64_t{1} << any(26))));
        const auto all = share_out(rules, tasks, static_cast<std::uint32_t>(any(rules.channels)));
        if (all.empty())
            continue;
        ASSERT_EQ(all.size(), tasks.size());
        for (std::size_t task = 0; task < all.size(); ++task) {
            std::uint64_t bytes = 0;
            for (const ChannelShare &share : all[task]) {
                EXPECT_LT(share.channel, rules.channels);
                bytes += share.bytes;
            }
            EXPECT_EQ(bytes, tasks[task].count * 4);
        }
    }
}

} // namespace
} // namespace collwire::nccl
