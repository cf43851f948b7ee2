// SPDX-License-Identifier: Apache-2.0
// The generator's arithmetic against operations that NCCL 2.28.9 itself made: recorded from jobs of
// 4 ranks on 4 and on 2 nodes, with two channels. And against sums that the algorithms give.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tools/trace-gen/job_sizes.h"

namespace collwire::trace_gen {
namespace {

constexpr std::uint32_t CHANNELS = 2;

struct RecordedOp {
    CollectiveSize size;
    std::uint32_t channel;
    std::uint64_t channel_bytes, chunk_bytes, slice_bytes, fifo_bytes, loop_bytes, offset_bytes;
    std::uint32_t steps;
    std::uint32_t n_channels = 2;
    std::uint32_t n_ranks = 4;
};

CollectiveSize all_reduce(std::uint64_t count, std::uint32_t element_bytes,
                          cw_nccl_protocol protocol = CW_NCCL_SIMPLE,
                          cw_nccl_algorithm algorithm = CW_NCCL_RING) {
    return {.func = CW_NCCL_ALL_REDUCE,
            .algorithm = algorithm,
            .protocol = protocol,
            .count = count,
            .element_bytes = element_bytes};
}

CollectiveSize of(cw_nccl_func func, std::uint64_t count, std::uint32_t element_bytes,
                  cw_nccl_protocol protocol = CW_NCCL_SIMPLE) {
    CollectiveSize size = all_reduce(count, element_bytes, protocol);
    size.func = func;
    return size;
}

TEST(JobSizes, ChannelsAndChunksAreThoseThatNcclRecorded) {
    const std::vector<RecordedOp> ops = {
        {of(CW_NCCL_ALL_GATHER, 40960, 1), 0, 20480, 2097152, 1048576, 1048576, 8388608, 0, 12},
        {of(CW_NCCL_ALL_GATHER, 40960, 1), 1, 20480, 2097152, 1048576, 1048576, 8388608, 20480, 12},
        {of(CW_NCCL_REDUCE_SCATTER, 10240, 4), 1, 20480, 2097152, 1048576, 1048576, 8388608, 20480,
         12},
        {of(CW_NCCL_REDUCE_SCATTER, 1024, 4, CW_NCCL_LL), 0, 4096, 32768, 32768, 65536, 131072, 0,
         3, 1},
        {all_reduce(1024, 4, CW_NCCL_LL), 0, 4096, 32768, 32768, 65536, 131072, 0, 6, 1},
        {all_reduce(16384, 4, CW_NCCL_LL), 0, 32768, 32768, 32768, 65536, 131072, 0, 6},
        {all_reduce(16384, 4, CW_NCCL_LL), 1, 32768, 32768, 32768, 65536, 131072, 32768, 6},
        {all_reduce(2048, 2, CW_NCCL_LL), 0, 4096, 32768, 32768, 65536, 131072, 0, 6, 1},
        {all_reduce(16384, 4), 1, 32768, 2097152, 1048576, 1048576, 4194304, 32768, 8, 2, 2},
        {all_reduce(75001, 4), 0, 155648, 2097152, 1048576, 1048576, 8388608, 0, 24},
        {all_reduce(75001, 4), 1, 144356, 2097152, 1048576, 1048576, 8388608, 155648, 24},
        {all_reduce(128, 8, CW_NCCL_LL, CW_NCCL_TREE), 0, 1024, 32768, 32768, 65536, 32768, 0, 1,
         1},
    };
    for (const RecordedOp &op : ops) {
        const auto parts = channel_parts(op.size, op.n_ranks, CHANNELS);
        ASSERT_EQ(parts.size(), op.n_channels) << op.channel_bytes;
        const ChannelPart &part = parts[op.channel];
        EXPECT_EQ(part.channel_bytes, op.channel_bytes);
        EXPECT_EQ(part.chunk_bytes, op.chunk_bytes);
        EXPECT_EQ(part.slice_bytes, op.slice_bytes);
        EXPECT_EQ(part.fifo_bytes, op.fifo_bytes);
        EXPECT_EQ(part.loop_bytes, op.loop_bytes);
        EXPECT_EQ(part.offset_bytes, op.offset_bytes);
        EXPECT_EQ(part.steps, op.steps);
    }
}

TEST(JobSizes, PartsOfATransferAreThoseThatNcclRecorded) {
    struct RecordedTransfer {
        std::uint64_t bytes;
        std::uint32_t channel;
        std::uint64_t chunk_bytes, first_bytes;
        std::uint32_t steps;
        std::uint32_t n_channels = 1;
    };
    // To the next rank, whose first channel is 1.
    for (const RecordedTransfer &recorded : std::vector<RecordedTransfer>{
             {0, 1, 32768, 0, 1},
             {16384, 1, 32768, 16384, 1},
             {102400, 1, 32768, 32768, 4},
             {204800, 0, 65536, 65536, 2, 2},
             {204800, 1, 65536, 65536, 2, 2},
         }) {
        const TransferPlan plan = transfer_plan(
            recorded.bytes,
            {.n_ranks = 4, .p2p_channels = 2, .channels_a_peer = 2, .base_channel = 1});
        ASSERT_EQ(plan.n_channels, recorded.n_channels) << recorded.bytes;
        const TransferPart &part =
            plan.parts[recorded.n_channels == 1 || recorded.channel == 1 ? 0 : 1];
        EXPECT_EQ(part.channel, recorded.channel);
        EXPECT_EQ(part.chunk_bytes, recorded.chunk_bytes);
        EXPECT_EQ(part.first_bytes, recorded.first_bytes);
        EXPECT_EQ(part.steps, recorded.steps);
    }
}

// Over all ranks a ring moves 2 (n - 1) times the data, whatever the division into chunks.
TEST(JobSizes, ARingOfAnAllReduceMovesTwiceTheDataLessOneRanksShare) {
    for (const std::uint32_t n_ranks : {2U, 3U, 16U, 56U})
        for (const std::uint64_t count : {1ULL, 511ULL, 75'001ULL, 16'777'216ULL, 99'999'999ULL}) {
            const CollectiveSize size = all_reduce(count, 4);
            std::uint64_t sent_bytes = 0;
            std::uint64_t messages = 0;
            for (const ChannelPart &part : channel_parts(size, n_ranks, 16))
                for (std::uint32_t place = 0; place < n_ranks; place++) {
                    const Carried carried = sent_on_ring(size, part, n_ranks, place);
                    sent_bytes += carried.payload_bytes;
                    messages += carried.messages;
                    EXPECT_EQ(carried.messages * part.slice_steps, carried.steps);
                }
            EXPECT_EQ(sent_bytes, std::uint64_t{2} * (n_ranks - 1) * count * 4)
                << n_ranks << " " << count;
            EXPECT_GT(messages, 0U);
        }
}

TEST(JobSizes, ChannelsOfACollectiveHaveAllOfItsBytes) {
    for (const std::uint32_t channels : {1U, 2U, 7U, 16U, 24U})
        for (std::uint64_t count = 1; count < 40'000'000; count = count * 3 + 1) {
            std::uint64_t bytes = 0;
            for (const ChannelPart &part :
                 channel_parts(of(CW_NCCL_ALL_GATHER, count, 2), 24, channels)) {
                EXPECT_EQ(part.offset_bytes, bytes);
                bytes += part.channel_bytes;
            }
            EXPECT_EQ(bytes, count * 2);
        }
}

} // namespace
} // namespace collwire::trace_gen
