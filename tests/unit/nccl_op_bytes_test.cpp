// SPDX-License-Identifier: Apache-2.0
// The bytes of operations that were observed, and edge cases by hand.
#include <gtest/gtest.h>

#include <iterator>
#include <span>
#include <vector>

#include "collwire/nccl_launch_records.h"
#include "tests/unit/nccl_observed_ops.h"

namespace collwire::nccl {
namespace {

using namespace collwire::nccl::test;

// A collective on a ring of 3, of which `rank` sends; Simple, chunks of 1024 bytes.
OpFacts ring_of_three(std::int32_t rank, std::uint64_t channel_bytes, std::uint32_t nsteps) {
    OpFacts facts;
    facts.version = 22809;
    facts.n_ranks = 3;
    facts.rank = facts.op.ring_index = rank;
    facts.peer = facts.op.peer = (rank + 1) % 3;
    facts.is_send = true;
    facts.op.pattern = CW_NCCL_PATTERN_RING_TWICE;
    facts.op.protocol = CW_NCCL_SIMPLE;
    facts.op.channel_bytes = channel_bytes;
    facts.op.chunk_bytes = 1024;
    facts.op.nsteps = nsteps;
    facts.op.chunk_steps = 4;
    facts.op.slice_steps = 2;
    return facts;
}

TEST(NcclOpBytes, WhatCollectivesSent) {
    for (const ObservedCollective &observed : COLLECTIVES) {
        SCOPED_TRACE(std::distance(std::begin(COLLECTIVES), &observed));
        const auto bytes = derive_op_bytes(facts_of(observed));
        ASSERT_TRUE(bytes);
        EXPECT_EQ(bytes->payload_bytes, observed.payload_bytes);
        EXPECT_EQ(bytes->messages, observed.messages);
        EXPECT_FALSE(bytes->is_bound);
        EXPECT_LE(bytes->data_bytes, bytes->payload_bytes);
        if (observed.protocol == CW_NCCL_SIMPLE && observed.pattern != CW_NCCL_PATTERN_PAT_UP) {
            EXPECT_EQ(bytes->data_bytes, bytes->payload_bytes);
        }
    }
}

TEST(NcclOpBytes, WhatSendsAndReceivesCarried) {
    for (const ObservedTransfer &observed : TRANSFERS) {
        SCOPED_TRACE(observed.task_bytes);
        std::vector<OpFacts> ops = facts_of(observed);
        find_part_bytes(ops, observed.p2p_channels, observed.first_channel);
        std::uint64_t data_bytes = 0;
        for (std::size_t i = 0; i < ops.size(); i++) {
            const auto bytes = derive_op_bytes(ops[i]);
            ASSERT_TRUE(bytes);
            EXPECT_EQ(bytes->payload_bytes, observed.parts[i].payload_bytes);
            EXPECT_EQ(bytes->messages, observed.parts[i].nsteps);
            EXPECT_FALSE(bytes->is_bound);
            data_bytes += bytes->data_bytes;
        }
        EXPECT_EQ(data_bytes, observed.task_bytes);
    }
}

TEST(NcclOpBytes, OneOperationOfASendAloneIsNeverTooLittle) {
    for (const ObservedTransfer &observed : TRANSFERS) {
        SCOPED_TRACE(observed.task_bytes);
        const std::vector<OpFacts> ops = facts_of(observed);
        for (std::size_t i = 0; i < ops.size(); i++) {
            const auto bytes = derive_op_bytes(ops[i]);
            ASSERT_TRUE(bytes);
            EXPECT_GE(bytes->payload_bytes, observed.parts[i].payload_bytes);
            EXPECT_EQ(bytes->messages, observed.parts[i].nsteps);
            if (!bytes->is_bound) {
                EXPECT_EQ(bytes->payload_bytes, observed.parts[i].payload_bytes);
            }
        }
    }
}

TEST(NcclOpBytes, PartsAreFoundOnlyWhereTheyAreCertain) {
    // Either channel can be the first one.
    const ObservedTransfer reversed = TRANSFERS[0];
    std::vector<OpFacts> ops = facts_of(reversed);
    find_part_bytes(ops, reversed.p2p_channels);
    EXPECT_FALSE(ops[0].part_bytes);
    EXPECT_TRUE(derive_op_bytes(ops[0])->is_bound);
    EXPECT_EQ(derive_op_bytes(ops[0])->data_bytes, 4u * 65536);

    // 0 and 3 of 4 channels: the first is 3. Of more channels they could not be neighbours.
    const ObservedTransfer wrapped = TRANSFERS[5];
    ops = facts_of(wrapped);
    find_part_bytes(ops, 0);
    EXPECT_EQ(ops[0].part_bytes, 578345u);
    EXPECT_EQ(ops[1].part_bytes, 581632u);

    // An operation that is missing: nothing is certain, but for what says itself.
    ops = facts_of(wrapped);
    find_part_bytes(std::span(ops).first(1), 4, 3);
    EXPECT_FALSE(ops[0].part_bytes);
    EXPECT_TRUE(derive_op_bytes(ops[0])->is_bound);
    EXPECT_EQ(derive_op_bytes(ops[0])->data_bytes, 581632u);

    // A first channel that contradicts the operations.
    ops = facts_of(wrapped);
    find_part_bytes(ops, 4, 1);
    EXPECT_FALSE(ops[0].part_bytes);

    // Of two tasks.
    ops = facts_of(wrapped);
    ops[1].task.bytes++;
    find_part_bytes(ops, 4, 3);
    EXPECT_FALSE(ops[0].part_bytes);
    std::vector<OpFacts> none;
    find_part_bytes(none, 4, 3);
    none.assign(2, OpFacts{});
    none[0].task.bytes = none[1].task.bytes = 1;
    none[0].op.pattern = none[1].op.pattern = CW_NCCL_PATTERN_SEND;
    find_part_bytes(none, 4, 3);
    EXPECT_FALSE(none[0].part_bytes);
}

TEST(NcclOpBytes, AllReduceOnARingSharesWhatIsLessThanALoop) {
    // 40 bytes: chunks of 16, 16 and 8, each sent twice, but by the rank itself and its
    // successor's.
    EXPECT_EQ(derive_op_bytes(ring_of_three(0, 40, 16))->payload_bytes, 80u - 16 - 16);
    EXPECT_EQ(derive_op_bytes(ring_of_three(1, 40, 16))->payload_bytes, 80u - 16 - 8);
    EXPECT_EQ(derive_op_bytes(ring_of_three(2, 40, 16))->payload_bytes, 80u - 8 - 16);
    // One byte: of rank 0's chunk, so only rank 1 sends it twice. Empty messages all the same.
    EXPECT_EQ(derive_op_bytes(ring_of_three(0, 1, 16))->payload_bytes, 1u);
    EXPECT_EQ(derive_op_bytes(ring_of_three(1, 1, 16))->payload_bytes, 2u);
    EXPECT_EQ(derive_op_bytes(ring_of_three(2, 1, 16))->payload_bytes, 1u);
    EXPECT_EQ(derive_op_bytes(ring_of_three(1, 1, 16))->messages, 8u);
    // Two whole loops, and the same with one byte more.
    EXPECT_EQ(derive_op_bytes(ring_of_three(2, 6144, 32)),
              (OpBytes{.payload_bytes = 8192, .messages = 16, .data_bytes = 8192}));
    EXPECT_EQ(derive_op_bytes(ring_of_three(2, 6145, 48)),
              (OpBytes{.payload_bytes = 8193, .messages = 24, .data_bytes = 8193}));
}

TEST(NcclOpBytes, AllReduceOnARingSendsAllTwiceButOnceAround) {
    for (const auto protocol : {CW_NCCL_SIMPLE, CW_NCCL_LL, CW_NCCL_LL128}) {
        for (const std::uint64_t channel_bytes : {1u, 48u, 49u, 5759u, 5760u, 5761u, 100'003u}) {
            std::uint64_t data_bytes = 0;
            for (std::int32_t rank = 0; rank < 3; rank++) {
                OpFacts facts = ring_of_three(rank, channel_bytes, 0);
                facts.op.protocol = static_cast<std::uint8_t>(protocol);
                facts.op.chunk_bytes = 1920;
                facts.op.chunk_steps = facts.op.slice_steps = 1;
                facts.op.nsteps = static_cast<std::uint32_t>((channel_bytes + 5759) / 5760 * 4);
                const auto sent = derive_op_bytes(facts);
                ASSERT_TRUE(sent);
                data_bytes += sent->data_bytes;
                // The receiver's end of the same connection.
                facts.is_send = false;
                facts.peer = facts.op.peer = rank;
                facts.rank = facts.op.ring_index = (rank + 1) % 3;
                EXPECT_EQ(derive_op_bytes(facts), sent);
            }
            EXPECT_EQ(data_bytes, 4 * channel_bytes);
        }
    }
}

// A channel of an AllReduce by NVLS_TREE over two nodes of three heads, as official NCCL had it.
struct ObservedHeads {
    std::uint64_t channel_bytes, chunk_bytes;
    std::uint32_t nsteps;
    std::array<std::uint64_t, 3> sent_bytes; // by head
};
constexpr ObservedHeads HEADS[] = {
    {2097152, 131072, 6, {699056, 699056, 699040}},
    {507904, 65536, 3, {169312, 169312, 169280}},
    {492108, 65536, 3, {164048, 164048, 164012}},
    {4, 32768, 1, {4, 0, 0}},
    {20, 32768, 1, {16, 4, 0}},
    {114688, 32768, 2, {38240, 38240, 38208}},
    {81924, 32768, 1, {27312, 27312, 27300}},
};

OpFacts facts_of(const ObservedHeads &observed, std::int32_t head) {
    OpFacts facts;
    facts.version = 22809;
    facts.n_ranks = 6;
    facts.rank = 1;
    facts.peer = facts.op.peer = 4;
    facts.is_send = true;
    facts.head_rank = head;
    facts.op.pattern = CW_NCCL_PATTERN_NVLS_TREE;
    facts.op.protocol = CW_NCCL_SIMPLE;
    facts.op.channel_bytes = observed.channel_bytes;
    facts.op.chunk_bytes = observed.chunk_bytes;
    facts.op.loop_bytes = 3 * observed.chunk_bytes;
    facts.op.nsteps = observed.nsteps;
    facts.op.chunk_steps = facts.op.slice_steps = 1;
    return facts;
}

TEST(NcclOpBytes, WhatHeadsOfNvlsSent) {
    for (const ObservedHeads &observed : HEADS) {
        SCOPED_TRACE(observed.channel_bytes);
        std::uint64_t all_bytes = 0;
        for (std::int32_t head = 0; head < 3; ++head) {
            const std::uint64_t bytes = observed.sent_bytes.at(static_cast<std::size_t>(head));
            EXPECT_EQ(derive_op_bytes(facts_of(observed, head)),
                      (OpBytes{.payload_bytes = bytes,
                               .messages = observed.nsteps,
                               .data_bytes = bytes}));
            all_bytes += bytes;
        }
        EXPECT_EQ(all_bytes, observed.channel_bytes);
    }
}

TEST(NcclOpBytes, AHeadThatIsNotKnownHasABound) {
    for (const ObservedHeads &observed : HEADS)
        EXPECT_EQ(derive_op_bytes(facts_of(observed, -1)),
                  (OpBytes{.payload_bytes = observed.sent_bytes[0],
                           .messages = observed.nsteps,
                           .data_bytes = observed.sent_bytes[0],
                           .is_bound = true}));
    // All heads alike.
    const ObservedHeads even{.channel_bytes = std::uint64_t{3} * 32768 + 96,
                             .chunk_bytes = 32768,
                             .nsteps = 2,
                             .sent_bytes = {}};
    EXPECT_EQ(derive_op_bytes(facts_of(even, -1)),
              (OpBytes{.payload_bytes = 32800, .messages = 2, .data_bytes = 32800}));
}

TEST(NcclOpBytes, NvlsThatContradictsItself) {
    const OpFacts known = facts_of(HEADS[0], 0);
    ASSERT_TRUE(derive_op_bytes(known));
    const auto is_known_with = [&](auto change) {
        OpFacts facts = known;
        change(facts);
        return derive_op_bytes(facts).has_value();
    };
    EXPECT_FALSE(is_known_with([](OpFacts &facts) { facts.head_rank = 3; }));
    EXPECT_FALSE(is_known_with([](OpFacts &facts) { facts.op.loop_bytes = 0; }));
    EXPECT_FALSE(is_known_with([](OpFacts &facts) { facts.op.loop_bytes += 1; }));
    EXPECT_FALSE(is_known_with([](OpFacts &facts) { facts.op.nsteps = 5; }));
    EXPECT_FALSE(is_known_with([](OpFacts &facts) { facts.op.protocol = CW_NCCL_LL; }));
}

TEST(NcclOpBytes, FlagsFillLinesOfEveryChunk) {
    OpFacts facts = ring_of_three(0, 0, 2);
    facts.op.pattern = CW_NCCL_PATTERN_TREE_UP_DOWN;
    facts.op.chunk_steps = facts.op.slice_steps = 1;
    const auto expect = [&](cw_nccl_protocol protocol, std::uint64_t channel_bytes,
                            std::uint64_t chunk_bytes, std::uint64_t payload_bytes) {
        facts.op.protocol = static_cast<std::uint8_t>(protocol);
        facts.op.channel_bytes = channel_bytes;
        facts.op.chunk_bytes = chunk_bytes;
        facts.op.nsteps = static_cast<std::uint32_t>((channel_bytes - 1) / chunk_bytes + 1);
        EXPECT_EQ(derive_op_bytes(facts), (OpBytes{.payload_bytes = payload_bytes,
                                                   .messages = facts.op.nsteps,
                                                   .data_bytes = channel_bytes}));
    };
    expect(CW_NCCL_LL, 1, 32768, 16);
    expect(CW_NCCL_LL, 8, 32768, 16);
    expect(CW_NCCL_LL, 9, 32768, 32);
    expect(CW_NCCL_LL, 32769, 32768, 65536 + 16);
    expect(CW_NCCL_LL128, 1, 576000, 2048);
    expect(CW_NCCL_LL128, 1920, 576000, 2048);
    expect(CW_NCCL_LL128, 1921, 576000, 4096);
    expect(CW_NCCL_LL128, 576001, 576000, 614400 + 2048);
    expect(CW_NCCL_SIMPLE, 524289, 524288, 524289);
}

TEST(NcclOpBytes, ReduceScatterOfPatLeavesRoomForRanksThatDoNotExist) {
    // 5 ranks as if they were 8: of the distances 1, 3, 5, 7 those of 1 and 3 exist, a message has
    // 2 of them, and 5 and 7 lie before.
    OpFacts facts;
    facts.n_ranks = 5;
    facts.rank = 0;
    facts.peer = 1;
    facts.is_send = true;
    facts.op.pattern = CW_NCCL_PATTERN_PAT_UP;
    facts.op.protocol = CW_NCCL_SIMPLE;
    facts.op.chunk_bytes = 65536;
    facts.op.channel_bytes = 100;
    facts.op.chunk_steps = facts.op.slice_steps = 1;
    facts.op.nsteps = 2;
    facts.version = 22602;
    EXPECT_EQ(derive_op_bytes(facts),
              (OpBytes{.payload_bytes = 400, .messages = 2, .data_bytes = 200}));
    facts.version = 22501;
    EXPECT_EQ(derive_op_bytes(facts),
              (OpBytes{.payload_bytes = 200, .messages = 2, .data_bytes = 200}));

    facts.op.pattern = CW_NCCL_PATTERN_PAT_DOWN; // sends the other way
    facts.peer = 4;
    facts.version = 22602;
    EXPECT_EQ(derive_op_bytes(facts),
              (OpBytes{.payload_bytes = 200, .messages = 2, .data_bytes = 200}));
    facts.peer = 2; // 3 apart
    EXPECT_FALSE(derive_op_bytes(facts));
    facts.peer = 4;
    facts.op.nsteps = 3; // more messages than there is to send
    EXPECT_FALSE(derive_op_bytes(facts));
}

TEST(NcclOpBytes, RegisteredBuffers) {
    // A ring of one rank on each node: messages of at most 1 GiB, a chunk each.
    OpFacts facts = ring_of_three(0, (std::uint64_t{1} << 30) + 5, 4);
    facts.op.pattern = CW_NCCL_PATTERN_RING;
    facts.op.func = CW_NCCL_ALL_GATHER;
    facts.op.registered = 1;
    facts.op.chunk_bytes = std::uint64_t{1} << 30;
    facts.op.chunk_steps = facts.op.slice_steps = 1;
    const std::uint64_t bytes = 2 * facts.op.channel_bytes;
    EXPECT_EQ(derive_op_bytes(facts),
              (OpBytes{.payload_bytes = bytes, .messages = 4, .data_bytes = bytes}));

    OpFacts send = facts_of(TRANSFERS[0])[0];
    send.op.registered = 1;
    send.op.nbytes = (std::uint64_t{1} << 30) + 1;
    send.op.nsteps = 2;
    EXPECT_EQ(
        derive_op_bytes(send),
        (OpBytes{.payload_bytes = send.op.nbytes, .messages = 2, .data_bytes = send.op.nbytes}));
    send.op.nsteps = 3;
    EXPECT_FALSE(derive_op_bytes(send));
}

TEST(NcclOpBytes, AnEmptySendIsOneEmptyMessage) {
    OpFacts facts = facts_of(TRANSFERS[12])[0];
    facts.op.nbytes = facts.task.bytes = 0;
    EXPECT_EQ(derive_op_bytes(facts), (OpBytes{.messages = 1}));
}

TEST(NcclOpBytes, SendsOfAnUnknownTask) {
    OpFacts several = facts_of(TRANSFERS[11])[0];
    several.task = {};
    EXPECT_EQ(
        derive_op_bytes(several),
        (OpBytes{.payload_bytes = 98304, .messages = 3, .data_bytes = 98304, .is_bound = true}));
    OpFacts one = facts_of(TRANSFERS[12])[0];
    one.task = {};
    EXPECT_EQ(derive_op_bytes(one), (OpBytes{.payload_bytes = 4, .messages = 1, .data_bytes = 4}));
    OpFacts lines = facts_of(TRANSFERS[16])[0];
    lines.task = {};
    EXPECT_EQ(
        derive_op_bytes(lines),
        (OpBytes{.payload_bytes = 18528, .messages = 1, .data_bytes = 9264, .is_bound = true}));
}

TEST(NcclOpBytes, GroupedBroadcastsAreBounded) {
    OpFacts facts = ring_of_three(0, 0, 2);
    facts.version = 23203;
    facts.op.pattern = CW_NCCL_PATTERN_RING;
    facts.op.func = CW_NCCL_ALL_GATHER_V;
    facts.op.protocol = CW_NCCL_LL;
    facts.op.chunk_bytes = 32768;
    facts.op.chunk_steps = facts.op.slice_steps = 1;
    EXPECT_EQ(
        derive_op_bytes(facts),
        (OpBytes{.payload_bytes = 131072, .messages = 2, .data_bytes = 65536, .is_bound = true}));
}

// scheduler/allgatherv_sched.cc, by hand: rank 0 of a ring of three, two channels, LL.
TEST(NcclOpBytes, GroupedBroadcastsShareAnOperation) {
    OpFacts facts = ring_of_three(0, 0, 3);
    facts.version = 23203;
    facts.op.pattern = CW_NCCL_PATTERN_RING;
    facts.op.func = CW_NCCL_ALL_GATHER_V;
    facts.op.protocol = CW_NCCL_LL;
    facts.op.chunk_bytes = 32768;
    facts.op.chunk_steps = facts.op.slice_steps = 1;
    facts.op.channel = 0;
    facts.is_send = true;
    // Channel 0 has [0, 50176) of 100000, [0, 256) of 300 and all of 7; what its next rank is the
    // root of does not pass.
    const GroupedBroadcast own{.bytes = 100000, .ring_depth = 0};
    const GroupedBroadcast middle{.bytes = 300, .ring_depth = 1};
    const GroupedBroadcast next{.bytes = 7, .ring_depth = 2};
    const std::vector all{own, middle, next};
    auto parts = derive_broadcast_bytes(facts, all, 2);
    ASSERT_TRUE(parts);
    EXPECT_EQ((*parts)[0], (OpBytes{.payload_bytes = 100352, .messages = 2, .data_bytes = 50176}));
    EXPECT_EQ((*parts)[1], (OpBytes{.payload_bytes = 512, .messages = 1, .data_bytes = 256}));
    EXPECT_EQ((*parts)[2], OpBytes{});

    facts.is_send = false; // its own is not received
    facts.op.nsteps = 2;
    parts = derive_broadcast_bytes(facts, all, 2);
    ASSERT_TRUE(parts);
    EXPECT_EQ((*parts)[0], OpBytes{});
    EXPECT_EQ((*parts)[2], (OpBytes{.payload_bytes = 16, .messages = 1, .data_bytes = 7}));

    facts.op.channel = 1; // the rest: 49824, 44, nothing
    facts.op.nsteps = 1;
    parts = derive_broadcast_bytes(facts, all, 2);
    ASSERT_TRUE(parts);
    EXPECT_EQ((*parts)[1].data_bytes, 44u);
    EXPECT_EQ((*parts)[2], OpBytes{});

    // What does not come to its messages, or cannot be, is not known.
    EXPECT_FALSE(derive_broadcast_bytes(facts, all, 1));
    EXPECT_FALSE(derive_broadcast_bytes(facts, all, 0));
    facts.op.nsteps = 2;
    EXPECT_FALSE(derive_broadcast_bytes(facts, all, 2));
    facts.op.nsteps = 1;
    EXPECT_FALSE(
        derive_broadcast_bytes(facts, std::vector{own, {.bytes = 300, .ring_depth = 3}}, 2));
}

TEST(NcclOpBytes, EndsOfAPipelineHaveNoOperation) {
    OpFacts facts = ring_of_three(1, 1024, 1);
    facts.op.chunk_steps = facts.op.slice_steps = 1;
    const auto is_known = [&](cw_nccl_pattern pattern, std::int32_t root) {
        facts.op.pattern = static_cast<std::uint8_t>(pattern);
        facts.op.root = root;
        return derive_op_bytes(facts).has_value();
    };
    EXPECT_TRUE(is_known(CW_NCCL_PATTERN_PIPELINE_FROM, 1));
    EXPECT_FALSE(is_known(CW_NCCL_PATTERN_PIPELINE_FROM, 2)); // has it already
    EXPECT_TRUE(is_known(CW_NCCL_PATTERN_PIPELINE_TO, 2));
    EXPECT_FALSE(is_known(CW_NCCL_PATTERN_PIPELINE_TO, 1)); // keeps it
    facts.is_send = false;
    facts.peer = facts.op.peer = 0;
    EXPECT_TRUE(is_known(CW_NCCL_PATTERN_PIPELINE_FROM, 0));
    EXPECT_FALSE(is_known(CW_NCCL_PATTERN_PIPELINE_FROM, 1));
    EXPECT_TRUE(is_known(CW_NCCL_PATTERN_PIPELINE_TO, 1));
    EXPECT_FALSE(is_known(CW_NCCL_PATTERN_PIPELINE_TO, 0));
}

TEST(NcclOpBytes, WhatIsNotKnown) {
    const OpFacts known = ring_of_three(0, 3072, 16);
    ASSERT_TRUE(derive_op_bytes(known));
    const auto is_known_with = [&](auto change) {
        OpFacts facts = known;
        change(facts);
        return derive_op_bytes(facts).has_value();
    };
    for (const auto pattern :
         {CW_NCCL_PATTERN_COLLNET_CHAIN, CW_NCCL_PATTERN_COLLNET_DIRECT, CW_NCCL_PATTERN_NVLS,
          CW_NCCL_PATTERN_NVLS_TREE, CW_NCCL_PATTERN_TREE_UP, CW_NCCL_PATTERN_TREE_DOWN,
          CW_NCCL_PATTERN_PROFILER, CW_NCCL_PATTERN_UNKNOWN}) {
        EXPECT_FALSE(is_known_with([&](OpFacts &facts) {
            facts.op.pattern = static_cast<std::uint8_t>(pattern);
        })) << pattern;
    }
    EXPECT_FALSE(is_known_with([](OpFacts &facts) { facts.version = 21905; }));
    EXPECT_FALSE(is_known_with([](OpFacts &facts) { facts.version = 0; }));
    EXPECT_FALSE(is_known_with([](OpFacts &facts) { facts.op.protocol = 0xff; }));
    EXPECT_FALSE(is_known_with([](OpFacts &facts) { facts.op.nsteps = 12; }));
    EXPECT_FALSE(is_known_with([](OpFacts &facts) { facts.op.slice_steps = 0; }));
    EXPECT_FALSE(is_known_with([](OpFacts &facts) { facts.op.chunk_steps = 0; }));
    EXPECT_FALSE(is_known_with([](OpFacts &facts) { facts.op.chunk_bytes = 0; }));
    EXPECT_FALSE(is_known_with([](OpFacts &facts) { facts.op.channel_bytes = 0; }));
    EXPECT_FALSE(is_known_with([](OpFacts &facts) { facts.op.channel_bytes = ~0ULL; }));
    EXPECT_FALSE(is_known_with([](OpFacts &facts) { facts.op.ring_index = 3; }));
    EXPECT_FALSE(is_known_with([](OpFacts &facts) { facts.op.ring_index = -1; }));
    EXPECT_FALSE(is_known_with([](OpFacts &facts) { facts.n_ranks = 1; }));
    EXPECT_FALSE(is_known_with([](OpFacts &facts) { facts.peer = -1; }));
    EXPECT_FALSE(is_known_with([](OpFacts &facts) { facts.peer = facts.rank; }));
    EXPECT_FALSE(derive_op_bytes(OpFacts{}));

    OpFacts transfer = facts_of(TRANSFERS[11])[0];
    ASSERT_TRUE(derive_op_bytes(transfer));
    transfer.op.nbytes--; // the first of several messages is full
    EXPECT_FALSE(derive_op_bytes(transfer));
    transfer.op.nbytes++;
    transfer.is_send = true; // of a receive
    EXPECT_FALSE(derive_op_bytes(transfer));
    transfer.is_send = false;
    transfer.part_bytes = 100'000; // 4 messages
    EXPECT_FALSE(derive_op_bytes(transfer));
}

} // namespace
} // namespace collwire::nccl
