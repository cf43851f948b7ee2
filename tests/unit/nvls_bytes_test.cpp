// SPDX-License-Identifier: Apache-2.0
// What NVLS moves over NVLink, against what tests/cuda_double played for official NCCL.
#include "correlate/nccl/nvls_bytes.h"

#include <gtest/gtest.h>

namespace collwire::nccl {
namespace {

cw_nccl_shape_task task_of(std::uint8_t func, std::uint8_t algorithm) {
    cw_nccl_shape_task task{};
    task.func = func;
    task.algorithm = algorithm;
    task.protocol = CW_NCCL_SIMPLE;
    return task;
}

NvlsRank rank_of(std::int32_t n_nodes, std::int32_t n_heads, std::int32_t head_rank) {
    NvlsRank rank{.n_ranks = n_nodes * n_heads, .n_nodes = n_nodes};
    rank.place.n_heads = n_heads;
    rank.place.head_rank = head_rank;
    rank.place.chunk_bytes = 131072;
    return rank;
}

struct Observed {
    std::uint64_t channel_bytes;
    std::int32_t head_rank;
    std::uint64_t bytes; // to the switch, and from it
};

TEST(NvlsBytes, OfTreesOverTwoNodes) {
    const auto task = task_of(CW_NCCL_ALL_REDUCE, CW_NCCL_NVLS_TREE);
    for (const Observed &observed : {Observed{2097152, 0, 2796208},
                                     {2097152, 2, 2796192},
                                     {507904, 1, 677216},
                                     {507904, 2, 677184},
                                     {492108, 2, 656120},
                                     {4, 0, 8},
                                     {4, 1, 4},
                                     {20, 1, 24},
                                     {114688, 2, 152896},
                                     {81924, 0, 109236}}) {
        const NvlsRank rank = rank_of(2, 3, observed.head_rank);
        ASSERT_TRUE(is_nvls_known(rank, task));
        const SwitchBytes bytes = nvls_bytes(rank, task, observed.channel_bytes);
        EXPECT_EQ(bytes.to_bytes, observed.bytes) << observed.channel_bytes;
        EXPECT_EQ(bytes.from_bytes, observed.bytes);
    }
}

// Chunks of 64 KiB from four nodes on, unless NCCL says otherwise.
TEST(NvlsBytes, ManyNodesHaveSmallerChunks) {
    const auto task = task_of(CW_NCCL_ALL_REDUCE, CW_NCCL_NVLS_TREE);
    constexpr std::uint64_t BYTES = std::uint64_t{8} * 2 * 131072 + std::uint64_t{2} * 65536;
    NvlsRank rank = rank_of(4, 2, 1);
    EXPECT_EQ(nvls_bytes(rank, task, BYTES).to_bytes, BYTES + BYTES / 2);
    EXPECT_EQ(nvls_bytes(rank, task, BYTES + 65536).to_bytes, BYTES + 65536 + BYTES / 2 + 32768);
    rank.tree_chunk_bytes = 131072;
    EXPECT_EQ(nvls_bytes(rank, task, BYTES + 16).to_bytes, BYTES + 16 + BYTES / 2);
    rank.place.tree_chunk_bytes = 65536; // the process's own
    EXPECT_EQ(nvls_bytes(rank, task, BYTES + 16).to_bytes, BYTES + 16 + BYTES / 2);
}

TEST(NvlsBytes, WhoIsNoHeadHasNoPartOfItsOwn) {
    const auto task = task_of(CW_NCCL_ALL_REDUCE, CW_NCCL_NVLS_TREE);
    const SwitchBytes bytes = nvls_bytes(rank_of(2, 3, -1), task, 507904);
    EXPECT_EQ(bytes.to_bytes, 507904U);
    EXPECT_EQ(bytes.from_bytes, 507904U);
}

TEST(NvlsBytes, AllGatherAndReduceScatterAreEachOthersReverse) {
    const NvlsRank rank = rank_of(1, 4, 2);
    const SwitchBytes gather = nvls_bytes(rank, task_of(CW_NCCL_ALL_GATHER, CW_NCCL_NVLS), 1000);
    EXPECT_EQ(gather.to_bytes, 1000U);
    EXPECT_EQ(gather.from_bytes, 4000U);
    const SwitchBytes scatter =
        nvls_bytes(rank, task_of(CW_NCCL_REDUCE_SCATTER, CW_NCCL_NVLS), 1000);
    EXPECT_EQ(scatter.to_bytes, 4000U);
    EXPECT_EQ(scatter.from_bytes, 1000U);
}

TEST(NvlsBytes, WhatIsNotKnown) {
    const auto reduce = task_of(CW_NCCL_ALL_REDUCE, CW_NCCL_NVLS);
    const auto gather = task_of(CW_NCCL_ALL_GATHER, CW_NCCL_NVLS);
    EXPECT_TRUE(is_nvls_known(rank_of(1, 4, 0), reduce));
    EXPECT_TRUE(is_nvls_known(rank_of(1, 4, 0), gather));
    EXPECT_FALSE(is_nvls_known(rank_of(2, 4, 0), reduce)) << "with CollNet between the nodes";
    EXPECT_FALSE(is_nvls_known(rank_of(1, 0, -1), reduce));
    NvlsRank few = rank_of(1, 4, 0);
    few.n_ranks = 8; // of which four are heads
    EXPECT_TRUE(is_nvls_known(few, reduce));
    EXPECT_FALSE(is_nvls_known(few, gather));
    NvlsRank without = rank_of(1, 4, 0);
    without.place.chunk_bytes = 0;
    EXPECT_FALSE(is_nvls_known(without, reduce));
    EXPECT_FALSE(is_nvls_known(rank_of(1, 4, 0), task_of(CW_NCCL_ALL_REDUCE, CW_NCCL_RING)));
    EXPECT_FALSE(is_nvls_known(rank_of(2, 4, 0), task_of(CW_NCCL_ALL_GATHER, CW_NCCL_NVLS_TREE)));
}

} // namespace
} // namespace collwire::nccl
