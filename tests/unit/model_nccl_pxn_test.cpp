// SPDX-License-Identifier: Apache-2.0
// Operations that NCCL gives to the proxy of another rank of the node (PXN): the connection is in
// that rank's process, which has no operation on it.
#include "collwire/nccl_connection_records.h"
#include "collwire/nccl_launch_records.h"
#include "tests/support/model_of.h"
#include "tests/support/nccl_builder.h"

namespace collwire::nccl {
namespace {

using namespace collwire::test;

constexpr RankOptions ZERO{.pid = 100, .rank = 0, .n_ranks = 4};
constexpr RankOptions ONE{.pid = 101, .comm = 0xbeef0000, .rank = 1, .n_ranks = 4};
constexpr RankOptions TWO{.pid = 102, .comm = 0xabba0000, .rank = 2, .n_ranks = 4};

QpOptions qp_of(std::uint32_t qpn, std::uint32_t pid) {
    QpOptions qp = RING_QPS[0][0];
    qp.qpn = qpn;
    qp.pid = pid;
    return qp;
}

// As the recorder writes it: the process is the proxy's, the rank that of the data.
void found_elsewhere(NodeBuilder &node, std::uint32_t pid, std::int32_t rank, double time,
                     std::uint32_t qpn, std::int32_t peer = 3) {
    NcclBuilder(node, {.pid = pid, .comm = 0, .rank = rank, .version = 0})
        .connection(time, SENDS_AT, true, peer, {qpn}, 0, CW_NCCL_CONNECTION_OUTSIDE);
}

struct Sent {
    double time = 12;
    std::uint64_t shape = 1;
    std::uint64_t buffer = 0x7f0000000000;
};

// 400 bytes to rank 3.
void sends(NcclBuilder &rank, const Sent &sent = {}) {
    const CallOptions call{.func = CW_NCCL_SEND, .count = 100, .root = 3, .buffer = sent.buffer};
    cw_nccl_op op = NcclBuilder::p2p(SENDS_AT, true, 3, 400);
    op.flags = CW_NCCL_OP_OTHER_PROXY;
    op.proxy_index = 1;
    rank.call(sent.time, call)
        .shape(sent.time, sent.shape, {call}, {op})
        .launch(sent.time + 0.1, sent.shape, {call});
}

void expect_400_bytes_of_rank_0(const model::Model &model) {
    ASSERT_EQ(model.nccl.p2p.size(), 1U);
    EXPECT_EQ(model.nccl.p2p[0].payload_bytes, 400U);
    EXPECT_EQ(model.nccl.p2p[0].rung, Rung::Exact);
    ASSERT_EQ(model.nccl.matrix.size(), 1U);
    EXPECT_EQ(model.nccl.matrix.begin()->first.source, 0) << "the rank whose data it is";
    EXPECT_EQ(model.nccl.matrix.begin()->first.destination, 3);
}

TEST(NcclPxn, TheProxyOfAnotherRank) {
    NodeBuilder node({.flags = NCCL_NODE_FLAGS});
    const QpOptions qp = qp_of(17, 101);
    node.usual(1).qp(qp);
    NcclBuilder zero(node, ZERO), one(node, ONE);
    zero.comm();
    one.comm();
    sends(zero);
    found_elsewhere(node, 101, 0, 12.5, 17);
    node.wire(qp, 15, {.requests = 1, .request_payload = 400}, {}).clock(20).end();
    const model::Model model = model_of({node.bytes()});
    ASSERT_EQ(model.nccl.communicators.size(), 1U);
    expect_400_bytes_of_rank_0(model);
}

// Another process has a connection of its own there, to the same rank.
TEST(NcclPxn, TheSameAddressInTwoProcesses) {
    NodeBuilder node({.flags = NCCL_NODE_FLAGS});
    const QpOptions proxied = qp_of(17, 101), own = qp_of(19, 102);
    node.usual(1).qp(proxied).qp(own);
    NcclBuilder zero(node, ZERO), one(node, ONE), two(node, TWO);
    zero.comm();
    one.comm();
    two.comm().connection(11.2, SENDS_AT, true, 3, {19});
    sends(zero);
    found_elsewhere(node, 101, 0, 12.5, 17);
    node.wire(proxied, 15, {.requests = 1, .request_payload = 400}, {}).clock(20).end();
    expect_400_bytes_of_rank_0(model_of({node.bytes()}));
}

// One process drives both GPUs.
TEST(NcclPxn, TheProxyOfAnotherRankInTheSameProcess) {
    NodeBuilder node({.flags = NCCL_NODE_FLAGS});
    const QpOptions qp = qp_of(17, 100);
    node.usual(1).qp(qp);
    RankOptions here = ONE;
    here.pid = ZERO.pid;
    NcclBuilder zero(node, ZERO), one(node, here);
    zero.comm();
    one.comm();
    sends(zero);
    found_elsewhere(node, 100, 0, 12.5, 17);
    node.wire(qp, 15, {.requests = 1, .request_payload = 400}, {}).clock(20).end();
    expect_400_bytes_of_rank_0(model_of({node.bytes()}));
}

// What the proxy's process has there is its own, or goes elsewhere: not guessed.
TEST(NcclPxn, ConnectionsOfOtherRanksAreNotUsed) {
    NodeBuilder node({.flags = NCCL_NODE_FLAGS});
    const QpOptions own = qp_of(17, 101), other = qp_of(19, 102);
    node.usual(1).qp(own).qp(other);
    NcclBuilder zero(node, ZERO), one(node, ONE), two(node, TWO);
    zero.comm();
    one.comm().connection(11.2, SENDS_AT, true, 3, {17});
    two.comm();
    found_elsewhere(node, 102, 0, 12.5, 19, 2);
    sends(zero);
    node.wire(own, 15, {.requests = 1, .request_payload = 400}, {}).clock(20).end();
    const model::Model model = model_of({node.bytes()});
    ASSERT_EQ(model.nccl.p2p.size(), 1U);
    EXPECT_EQ(model.nccl.p2p[0].payload_bytes, 0U);
    EXPECT_EQ(model.nccl.totals.by_rung[static_cast<std::size_t>(Rung::Exact)], 0U);
}

// The communicator ends, and the next one's connection comes to lie where the first one's was.
TEST(NcclPxn, ReusedAddressIsAnotherConnection) {
    NodeBuilder node({.flags = NCCL_NODE_FLAGS});
    const QpOptions before = qp_of(17, 101), after = qp_of(19, 101);
    node.usual(1).qp(before).qp(after);
    NcclBuilder zero(node, ZERO), one(node, ONE);
    RankOptions next = ZERO;
    next.created = 14;
    next.hash = 0x99;
    NcclBuilder again(node, next);
    zero.comm();
    one.comm();
    sends(zero);
    found_elsewhere(node, 101, 0, 12.5, 17);
    zero.end(13);
    again.comm();
    sends(again, {.time = 14.1, .shape = 2, .buffer = 0x7f1000000000});
    found_elsewhere(node, 101, 0, 14.5, 19);
    node.wire(before, 18, {.requests = 1, .request_payload = 400}, {})
        .wire(after, 18, {.requests = 1, .request_payload = 400}, {})
        .clock(20)
        .end();
    const model::Model model = model_of({node.bytes()});
    ASSERT_EQ(model.nccl.p2p.size(), 2U);
    for (const auto &operation : model.nccl.p2p) {
        EXPECT_EQ(operation.payload_bytes, 400U);
        EXPECT_EQ(operation.rung, Rung::Exact);
    }
}

} // namespace
} // namespace collwire::nccl
