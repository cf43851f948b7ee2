// SPDX-License-Identifier: Apache-2.0
// The sizes of the messages of operations: against their observed sums, and by hand from NCCL's
// kernels.
#include <gtest/gtest.h>

#include <array>
#include <iterator>
#include <vector>

#include "collwire/nccl_launch_records.h"
#include "correlate/nccl/op_messages.h"
#include "tests/unit/nccl_observed_ops.h"

namespace collwire::nccl {
namespace {

using namespace collwire::nccl::test;

constexpr std::size_t MTU_1024 = 2;

MessagePackets of_sizes(const std::vector<std::uint64_t> &sizes) {
    MessagePackets sum;
    for (const std::uint64_t bytes : sizes)
        sum.add(bytes, 1);
    return sum;
}

// A ring of 3 over slots of 4 MiB: chunks of 2 MiB are sent in slices, 32 KiB at least.
OpFacts ring_of_three(std::uint8_t pattern, std::uint64_t channel_bytes, std::uint32_t nsteps) {
    OpFacts facts;
    facts.version = 22809;
    facts.n_ranks = 3;
    facts.rank = facts.op.ring_index = 0;
    facts.peer = facts.op.peer = 1;
    facts.is_send = true;
    facts.op.pattern = pattern;
    facts.op.protocol = CW_NCCL_SIMPLE;
    facts.op.datatype = 7; // ncclFloat32
    facts.op.channel_bytes = channel_bytes;
    facts.op.chunk_bytes = 2 << 20;
    facts.op.nbytes = 1 << 20;
    facts.op.nsteps = nsteps;
    facts.op.chunk_steps = 4;
    facts.op.slice_steps = 2;
    return facts;
}

TEST(NcclOpMessages, EmptyMessagesArePackets) {
    const MessagePackets packets = of_sizes({0, 1, 1024, 1025});
    EXPECT_EQ(packets.messages, 4U);
    EXPECT_EQ(packets.pad_bytes, 3U + 3U);
    EXPECT_EQ(packets.packets, (std::array<std::uint64_t, CW_MTU_CLASSES>{11, 7, 5, 4, 4}));
}

// net_ib.cc: parts of multiples of 128 bytes, the last ones less or empty.
TEST(NcclOpMessages, AMessageIsSplitOverQueuePairs) {
    MessagePackets packets;
    packets.add(1001, 1, {.parts = 2}); // 512 and 489
    EXPECT_EQ(packets.messages, 1U);
    EXPECT_EQ(packets.with_immediate, 2U);
    EXPECT_EQ(packets.plain, 0U);
    EXPECT_EQ(packets.pad_bytes, 3U);
    EXPECT_EQ(packets.packets, (std::array<std::uint64_t, CW_MTU_CLASSES>{4, 2, 2, 2, 2}));
    MessagePackets small;
    small.add(100, 1, {.parts = 3}); // 100, nothing, nothing
    EXPECT_EQ(small.with_immediate, 3U);
    EXPECT_EQ(small.packets, (std::array<std::uint64_t, CW_MTU_CLASSES>{3, 3, 3, 3, 3}));
}

// The data, then an empty request with the immediate data.
TEST(NcclOpMessages, AdaptiveRoutingMakesTwoRequestsOfALargeMessage) {
    constexpr MessageRules RULES{.apart_above_bytes = 8192};
    MessagePackets at;
    at.add(8192, 1, RULES);
    EXPECT_EQ(at, of_sizes({8192}));
    MessagePackets above;
    above.add(8193, 2, RULES);
    EXPECT_EQ(above.messages, 2U);
    EXPECT_EQ(above.with_immediate, 2U);
    EXPECT_EQ(above.plain, 2U);
    EXPECT_EQ(above.pad_bytes, 2 * 3U);
    EXPECT_EQ(above.packets, (std::array<std::uint64_t, CW_MTU_CLASSES>{68, 36, 20, 12, 8}));
    // The whole message decides, not the part of a queue pair.
    MessagePackets split;
    split.add(8193, 1, {.parts = 2, .apart_above_bytes = 8192}); // 4224 and 3969
    EXPECT_EQ(split.with_immediate, 2U);
    EXPECT_EQ(split.plain, 2U);
    EXPECT_EQ(split.packets[MTU_1024], 5 + 1 + 4 + 1U);
}

TEST(NcclOpMessages, AreTheObservedNumber) {
    std::size_t known = 0;
    for (const ObservedCollective &observed : COLLECTIVES) {
        SCOPED_TRACE(std::distance(std::begin(COLLECTIVES), &observed));
        const auto packets = derive_message_packets(facts_of(observed));
        if (!packets)
            continue;
        ++known;
        EXPECT_EQ(packets->messages, observed.messages);
        EXPECT_GE(packets->packets[MTU_1024] * 1024, observed.payload_bytes);
    }
    EXPECT_GT(known, 0U);
}

// genericOp: max(divUp(100000 / 4, 16 * 2) * 16, 262144 / 32) elements, then the rest.
TEST(NcclOpMessages, AChunkIsCutIntoSlices) {
    const auto packets = derive_message_packets(ring_of_three(CW_NCCL_PATTERN_RING, 100000, 2 * 4));
    ASSERT_TRUE(packets);
    EXPECT_EQ(*packets, of_sizes({50048, 49952, 50048, 49952}));
}

TEST(NcclOpMessages, ASmallChunkIsOneSliceAndAnEmptyOne) {
    const auto packets = derive_message_packets(ring_of_three(CW_NCCL_PATTERN_RING, 40000, 2 * 4));
    ASSERT_TRUE(packets);
    EXPECT_EQ(*packets, of_sizes({32768, 7232, 32768, 7232}));
    const auto tiny = derive_message_packets(ring_of_three(CW_NCCL_PATTERN_RING, 4, 2 * 4));
    ASSERT_TRUE(tiny);
    EXPECT_EQ(*tiny, of_sizes({4, 0, 4, 0}));
}

// Places of 33344, 33344 and 33312 bytes, each sent twice, but the first two once.
TEST(NcclOpMessages, ARemainderIsSharedByTheRanks) {
    const auto packets =
        derive_message_packets(ring_of_three(CW_NCCL_PATTERN_RING_TWICE, 100000, 4 * 4));
    ASSERT_TRUE(packets);
    EXPECT_EQ(*packets, of_sizes({32768, 576, 32768, 576, 32768, 544, 32768, 544}));
}

TEST(NcclOpMessages, UnknownWithRegisteredBuffersOrOtherSteps) {
    OpFacts facts = ring_of_three(CW_NCCL_PATTERN_RING, 100000, 2 * 4);
    facts.op.registered = 1;
    EXPECT_FALSE(derive_message_packets(facts));
    EXPECT_FALSE(derive_message_packets(ring_of_three(CW_NCCL_PATTERN_RING, 100000, 3 * 4)));
}

// A chunk in each loop; in the last one a head has its share of the rest, or nothing.
TEST(NcclOpMessages, AHeadOfNvlsSendsAChunkInEachLoop) {
    OpFacts facts = ring_of_three(CW_NCCL_PATTERN_NVLS_TREE, 507904, 3);
    facts.op.chunk_steps = facts.op.slice_steps = 1;
    facts.op.chunk_bytes = 65536;
    facts.op.loop_bytes = std::uint64_t{3} * 65536;
    facts.head_rank = 2;
    const auto packets = derive_message_packets(facts);
    ASSERT_TRUE(packets);
    EXPECT_EQ(*packets, of_sizes({65536, 65536, 169280 - 2 * 65536}));
    facts.op.channel_bytes = 20;
    facts.op.nsteps = 1;
    ASSERT_TRUE(derive_message_packets(facts));
    EXPECT_EQ(*derive_message_packets(facts), of_sizes({0}));
    facts.head_rank = -1;
    EXPECT_FALSE(derive_message_packets(facts));
}

TEST(NcclOpMessages, ASendIsCutIntoItsMessages) {
    OpFacts facts = ring_of_three(CW_NCCL_PATTERN_SEND, 0, 2);
    facts.op.chunk_steps = facts.op.slice_steps = 1;
    facts.op.chunk_bytes = facts.op.nbytes = 1 << 17;
    facts.part_bytes = 200000;
    const auto packets = derive_message_packets(facts);
    ASSERT_TRUE(packets);
    EXPECT_EQ(*packets, of_sizes({1 << 17, 200000 - (1 << 17)}));
}

} // namespace
} // namespace collwire::nccl
