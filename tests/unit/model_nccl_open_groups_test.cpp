// SPDX-License-Identifier: Apache-2.0
// Calls without a launch: those that never go to a proxy, and those whose group was open when the
// recording ended.
#include "collwire/nccl_connection_records.h"
#include "collwire/nccl_launch_records.h"
#include "collwire/node_records.h"
#include "collwire/socket_records.h"
#include "tests/support/model_of.h"
#include "tests/support/nccl_builder.h"
#include "tests/support/nccl_model.h"

namespace collwire::nccl {
namespace {

using namespace collwire::test;

// No rank of it gives such a call to a proxy.
constexpr CallOptions LOCAL{.func = CW_NCCL_ALL_REDUCE, .count = 1};

std::vector<std::vector<std::byte>> captures_until(RingPair &ring, double end,
                                                   bool has_end = true) {
    std::vector<std::vector<std::byte>> captures;
    for (NodeBuilder &node : ring.node) {
        node.clock(end);
        if (has_end)
            node.end(end);
        captures.push_back(node.bytes());
    }
    return captures;
}

// Over nodes, so how it was sent, if it was, is not seen.
void expect_nothing_to_come(const Operation &operation) {
    EXPECT_FALSE(operation.has(OPERATION_PARTIAL)) << operation.seq;
    EXPECT_FALSE(operation.has(OPERATION_PAYLOAD_KNOWN));
    EXPECT_EQ(operation.rung, Rung::Process);
}

// With a third rank that gives nothing to a proxy, but has a connection.
struct RingOfThree : RingPair {
    NcclBuilder inner;

    RingOfThree()
        : RingPair({.n_ranks = 3}), inner(node[0], {.pid = 101, .rank = 2, .n_ranks = 3}) {
        inner.comm().connection(11.2, SENDS_AT, true, 0, {}, 1, CW_NCCL_CONNECTION_OUTSIDE);
    }
    void all_gather_of_three(double time) {
        all_gather(time, 1000);
        inner.call(time, {.count = 1000});
        for (int i = 0; i < 2; ++i)
            sends(i, 4000); // it goes around twice
    }
};

// Other ranks launched it before their next call, and this one made its next call, too.
TEST(NcclOpenGroups, LastCallOfARankWithoutProxyWorkIsPartial) {
    RingOfThree ring;
    for (int i = 0; i < 8; ++i)
        ring.all_gather_of_three(12 + i);
    const model::Model model = model_of(captures_until(ring.sample(20), 20));
    ASSERT_EQ(model.nccl.collectives.size(), 8U);
    for (const Operation &operation : model.nccl.collectives) {
        EXPECT_EQ(operation.ranks, 3U);
        EXPECT_EQ(operation.has(OPERATION_PARTIAL), operation.seq == 7) << operation.seq;
    }
}

// A call between them is of the group of the next one, so what is known of that is known of it.
TEST(NcclOpenGroups, AGroupEndsBeforeTheNextCall) {
    RingOfThree ring;
    for (NcclBuilder *rank : {&ring.rank[0], &ring.rank[1], &ring.inner})
        rank->call(12, LOCAL).call(12.0005, LOCAL);
    for (int i = 1; i < 3; ++i)
        ring.all_gather_of_three(12 + i);
    const model::Model model = model_of(captures_until(ring.sample(20), 20));
    ASSERT_EQ(model.nccl.collectives.size(), 4U);
    for (const Operation &operation : model.nccl.collectives)
        EXPECT_EQ(operation.has(OPERATION_PARTIAL), operation.seq == 3) << operation.seq;
}

TEST(NcclOpenGroups, AllCallsOfAnOpenGroupArePartial) {
    RingPair ring;
    ring.all_gather(12, 1000);
    for (NcclBuilder &rank : ring.rank)
        rank.call(19, {.count = 2000}).call(19.0001, {.count = 3000});
    const model::Model model = model_of(captures_until(ring.sample(20), 20));
    EXPECT_FALSE(collective(model, 0).has(OPERATION_PARTIAL));
    EXPECT_TRUE(collective(model, 1).has(OPERATION_PARTIAL));
    EXPECT_TRUE(collective(model, 2).has(OPERATION_PARTIAL));
}

// The recorder ran on: what was called before would have been launched. Without a record of the end
// it ended with the last one.
TEST(NcclOpenGroups, CallLongBeforeTheEndIsNotInAnOpenGroup) {
    for (const double end : {25.0, 80.0})
        for (const bool has_end : {true, false}) {
            RingPair ring;
            ring.all_gather(12, 1000);
            for (NcclBuilder &rank : ring.rank)
                rank.call(19, LOCAL);
            const model::Model model = model_of(captures_until(ring.sample(20), end, has_end));
            if (end > 60)
                expect_nothing_to_come(collective(model, 1));
            else
                EXPECT_TRUE(collective(model, 1).has(OPERATION_PARTIAL));
        }
}

// A process that ended without destroying its communicators has lost its connections.
TEST(NcclOpenGroups, ExitedProcessHasNoOpenGroup) {
    RingPair ring;
    ring.all_gather(12, 1000);
    for (int i = 0; i < 2; ++i)
        ring.rank[i].call(19, LOCAL);
    ring.sample(19.2);
    for (int i = 0; i < 2; ++i)
        for (const QpOptions &qp : RING_QPS[i])
            ring.node[i].destroy(qp, 19.5);
    expect_nothing_to_come(collective(model_of(captures_until(ring, 20)), 1));
}

TEST(NcclOpenGroups, ClosedSocketsEndAnOpenGroup) {
    for (const bool is_gone : {false, true}) {
        NodeBuilder node({.flags = NCCL_NODE_FLAGS | CW_NODE_SOCKETS});
        node.usual(1);
        for (std::uint32_t i = 0; i < 2; ++i) {
            const auto number = static_cast<std::int32_t>(i);
            NcclBuilder rank(node, {.pid = 100 + i, .rank = number});
            rank.comm().socket_connection(11.2, SENDS_AT, true, 1 - number, 33 + i);
            rank.call(19, LOCAL);
            rank.socket(19.5, 33 + i, 0, 1000, 2000,
                        is_gone ? CW_TCP_SOCKET_GONE | CW_TCP_SOCKET_FINAL : 0);
        }
        const model::Model model = model_of({node.clock(20).end().bytes()});
        if (is_gone)
            expect_nothing_to_come(collective(model, 0));
        else
            EXPECT_TRUE(collective(model, 0).has(OPERATION_PARTIAL));
    }
}

} // namespace
} // namespace collwire::nccl
