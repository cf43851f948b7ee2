// SPDX-License-Identifier: Apache-2.0
// Launches of NCCL before 2.24, which do not name their calls.
#include "collwire/nccl_launch_records.h"
#include "tests/support/model_of.h"
#include "tests/support/nccl_builder.h"
#include "tests/support/nccl_model.h"

namespace collwire::nccl {
namespace {

using namespace collwire::test;

// Before 2.24 a launch names no task: the order of calls has to do.
TEST(NcclOperations, LegacyVersionsMatchByOrder) {
    RingPair ring({.version = 22203});
    const auto older = [&](double time, const std::vector<std::uint64_t> &counts) {
        for (int i = 0; i < 2; ++i) {
            std::uint64_t bytes = 0;
            for (const std::uint64_t count : counts) {
                ring.rank[i].call(time, {.func = CW_NCCL_ALL_REDUCE, .count = count});
                bytes += count * 4;
            }
            cw_nccl_op op =
                ring.rank[i].ring({.connection = SENDS_AT, .bytes = bytes}, CW_NCCL_ALL_REDUCE);
            op.channel_bytes = 0;
            op.peer = -1;
            op.nsteps = 4;
            op.algorithm = CW_NCCL_ALGORITHM_UNKNOWN;
            op.pattern = CW_NCCL_PATTERN_RING_TWICE;
            op.task = UINT32_MAX;
            ring.rank[i].shape(time, bytes, {}, {op});
            ring.launched += i == 0 ? counts.size() : 0;
            ring.rank[i].launch_refs(time + 0.01, bytes, {}, {.launched = ring.launched});
            ring.sends(i, bytes);
        }
        ring.sample(time + 0.5);
    };
    older(12, {100});
    older(14, {300});
    older(16, {50, 60}); // a group
    ring.sample(20);
    const model::Model model = model_of(ring.captures());
    ASSERT_EQ(model.nccl.collectives.size(), 4U);
    EXPECT_EQ(collective(model, 0).rung, Rung::Exact);
    EXPECT_EQ(collective(model, 0).payload_bytes, 800U) << "measured: one operation in between";
    EXPECT_FALSE(collective(model, 0).has(OPERATION_DATA_KNOWN));
    EXPECT_EQ(collective(model, 0).algorithm, CW_NCCL_RING);
    EXPECT_EQ(collective(model, 1).payload_bytes, 2400U);
    EXPECT_EQ(collective(model, 2).rung, Rung::Inferred);
    EXPECT_EQ(of_rung(model, Rung::Exact), 3200U);
    EXPECT_EQ(of_rung(model, Rung::Inferred), 880U);
}

// What NCCL makes of a call is known, though: of calls whose operations look alike, too.
TEST(NcclOperations, LegacyVersionsMatchByReplayedScheduler) {
    RingPair ring({.version = 22203});
    const auto launch = [&](double time, std::uint64_t shape,
                            const std::vector<std::uint64_t> &counts) {
        for (int i = 0; i < 2; ++i) {
            std::vector<cw_nccl_op> ops;
            for (const std::uint64_t count : counts) {
                ring.rank[i].call(time, {.func = CW_NCCL_ALL_REDUCE, .count = count});
                cw_nccl_op op =
                    ring.rank[i].ring({.connection = SENDS_AT, .bytes = 65536}, CW_NCCL_ALL_REDUCE);
                op.channel_bytes = 0;
                op.peer = -1;
                op.nsteps = 2;
                op.algorithm = CW_NCCL_ALGORITHM_UNKNOWN;
                op.pattern = CW_NCCL_PATTERN_RING_TWICE;
                op.ring_index = i;
                op.task = UINT32_MAX;
                ops.push_back(op);
                ring.sends(i, count * 4);
            }
            ring.rank[i].shape(time, shape, {}, ops);
            ring.launched += i == 0 ? counts.size() : 0;
            ring.rank[i].launch_refs(time + 0.001, shape, {}, {.launched = ring.launched});
        }
    };
    launch(12, 1, {100});
    launch(12.1, 1, {300}); // looks like the one before
    launch(12.2, 2, {500, 600});
    ring.sample(20);
    const model::Model model = model_of(ring.captures());
    ASSERT_EQ(model.nccl.collectives.size(), 4U);
    const std::uint64_t counts[] = {100, 300, 500, 600};
    for (std::uint64_t seq = 0; seq < 4; ++seq) {
        const Operation &operation = collective(model, seq);
        EXPECT_EQ(operation.rung, Rung::Exact) << seq;
        EXPECT_EQ(operation.payload_bytes, 2 * counts[seq] * 4) << "by two ranks";
        EXPECT_TRUE(operation.has(OPERATION_DATA_KNOWN));
        EXPECT_EQ(operation.algorithm, CW_NCCL_RING);
        EXPECT_EQ(operation.batch, seq < 2 ? 1 : 2);
    }
    EXPECT_EQ(of_rung(model, Rung::Inferred), 0U);
}

} // namespace
} // namespace collwire::nccl
