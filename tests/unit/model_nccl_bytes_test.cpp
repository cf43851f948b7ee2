// SPDX-License-Identifier: Apache-2.0
// Which bytes of a connection are whose, and how that is known.
#include "collwire/nccl_connection_records.h"
#include "collwire/nccl_launch_records.h"
#include "collwire/node_records.h"
#include "collwire/post_records.h"
#include "correlate/nccl/link_meter.h"
#include "tests/support/model_of.h"
#include "tests/support/nccl_builder.h"
#include "tests/support/nccl_model.h"

namespace collwire::nccl {
namespace {

using namespace collwire::test;

std::uint64_t of_source(const model::Model &model, ByteSource source) {
    return model.nccl.totals.by_source[static_cast<std::size_t>(source)];
}
constexpr unsigned bit(ByteSource source) {
    return 1U << static_cast<unsigned>(source);
}

TEST(NcclBytes, LastOperationsMayBeInFlight) {
    RingPair ring;
    ring.all_gather(12, 1000).all_gather(19, 2000).all_gather(19.1, 3000);
    // Of the last one a third went out, and no byte of another.
    for (std::uint64_t &sent : ring.sent)
        sent -= 8000;
    ring.sample(20);
    const model::Model model = model_of(ring.captures());
    const auto &all = model.nccl.collectives;
    ASSERT_EQ(all.size(), 3U);
    EXPECT_FALSE(all[0].has(OPERATION_PARTIAL));
    EXPECT_FALSE(all[1].has(OPERATION_PARTIAL));
    EXPECT_TRUE(all[2].has(OPERATION_PARTIAL));
    EXPECT_EQ(all[1].payload_bytes, 16'000U);
    EXPECT_EQ(all[2].payload_bytes, 8'000U);
    EXPECT_EQ(of_rung(model, Rung::Exact), 8'000 + 16'000 + 8'000U);
    expect_same_in_parts(model);
}

// One that hangs is not done, whatever is launched after it, and whatever was wrong before.
TEST(NcclBytes, HangingOperationMakesLaterOnesPartial) {
    for (const std::uint64_t excess : {0U, 50U}) {
        SCOPED_TRACE(excess);
        RingPair ring;
        ring.all_gather(11.5, 100).all_gather(11.6, 100);
        for (int i = 0; i < 2; ++i)
            ring.sends(i, excess);
        ring.sample(12);
        ring.all_gather(14, 1000);
        for (std::uint64_t &sent : ring.sent)
            sent -= 2000;
        ring.sample(15).all_gather(17, 1000);
        const model::Model model = model_of(ring.captures());
        const auto &all = model.nccl.collectives;
        ASSERT_EQ(all.size(), 4U);
        EXPECT_FALSE(all[1].has(OPERATION_PARTIAL));
        EXPECT_TRUE(all[2].has(OPERATION_PARTIAL));
        EXPECT_TRUE(all[3].has(OPERATION_PARTIAL));
        EXPECT_EQ(all[2].payload_bytes, 2 * 2000U);
        EXPECT_EQ(all[3].payload_bytes, 0U);
    }
}

TEST(NcclBytes, DifferenceIsReportedInItsIntervalOnly) {
    RingPair ring;
    ring.all_gather(12, 1000).all_gather(12.1, 1000);
    ring.sends(0, 50);
    ring.sample(14);
    ring.all_gather(17, 1000).sample(20);
    const model::Model model = model_of(ring.captures());
    EXPECT_EQ(of_rung(model, Rung::Exact), 6 * 4000U);
    EXPECT_EQ(of_rung(model, Rung::Inferred), 50U);
    EXPECT_EQ(of_rung(model, Rung::Process), 0U);
    EXPECT_EQ(of_source(model, ByteSource::Derived), 2 * 4000U);
    EXPECT_EQ(model.nccl.collectives[2].sources, bit(ByteSource::Wire));
}

TEST(NcclBytes, PostedBytesAreASourceOfTheirOwn) {
    std::vector<std::vector<std::byte>> captures;
    RingPair ring;
    NodeBuilder node({.flags = CW_NODE_FIRST_SEGMENT | CW_NODE_POSTS | CW_NODE_NCCL});
    node.device().port().gid(1).source("qp").source("posts").qp(RING_QPS[0][0]);
    NcclBuilder rank(node, {});
    const CallOptions call{.count = 1000};
    rank.comm().connection(11.2, SENDS_AT, true, 1, {17}).call(12, call);
    rank.shape(12, 1, {call}, {rank.ring({.connection = SENDS_AT, .bytes = 4000})});
    rank.launch(12.1, 1, {call}).launch(13, 1, {call});
    rank.call(12.5, call);
    node.posts(RING_QPS[0][0], 15, CW_POST_WRITE_IMM, 2, 4000).clock(20).end();
    const model::Model model = model_of({node.bytes()});
    ASSERT_EQ(model.nccl.collectives.size(), 2U);
    EXPECT_EQ(model.nccl.collectives[0].payload_bytes, 4000U);
    EXPECT_EQ(model.nccl.collectives[0].sources, bit(ByteSource::Posted));
    // 4 packets of 1024 with 58 of headers, and RETH 16 and ImmDt 4
    EXPECT_EQ(model.nccl.collectives[0].wire_bytes, 4000 + 4 * 58 + 16 + 4U);
    EXPECT_EQ(of_source(model, ByteSource::Posted), 8000U);
}

// Hardware without counters: NCCL's own fields alone.
TEST(NcclBytes, OnlyDerivedBytesAreKnown) {
    NodeBuilder node({.flags = CW_NODE_FIRST_SEGMENT | CW_NODE_NCCL});
    node.device(0, "mlx5_0", 0).port().gid(1).source("qp").qp(RING_QPS[0][0]);
    NcclBuilder rank(node, {});
    const CallOptions call{.count = 1000};
    rank.comm().connection(11.2, SENDS_AT, true, 1, {17}).call(12, call);
    rank.shape(12, 1, {call}, {rank.ring({.connection = SENDS_AT, .bytes = 4000})});
    rank.launch(12.1, 1, {call});
    node.clock(20).end();
    const model::Model model = model_of({node.bytes()});
    const Operation &operation = model.nccl.collectives.at(0);
    EXPECT_EQ(operation.payload_bytes, 4000U);
    EXPECT_EQ(operation.sources, bit(ByteSource::Derived));
    EXPECT_EQ(operation.rung, Rung::Exact);
    EXPECT_TRUE(operation.has(OPERATION_WIRE_KNOWN)) << "one message of four packets";
    EXPECT_EQ(operation.wire_bytes, 4000 + 4 * 58 + 16 + 4U);
    EXPECT_EQ(model.nccl.qps.at(0).derived_wire_bytes, operation.wire_bytes);
    EXPECT_EQ(model.nccl.totals.links_not_measured, 1U);
    EXPECT_FALSE(model.nccl.control.clear_to_send_payload_bytes);
    EXPECT_EQ(model.nccl.qps.at(0).derived_payload_bytes, 4000U);
}

// One or both of its two queue pairs are known: how much of it went over each is not.
TEST(NcclBytes, DerivedBytesCoverAllQueuePairsOfAConnection) {
    for (const std::size_t known : {1U, 2U}) {
        NodeBuilder node({.flags = CW_NODE_FIRST_SEGMENT | CW_NODE_NCCL});
        node.device(0, "mlx5_0", 0).port().gid(1).source("qp").qp(RING_QPS[0][0]);
        if (known == 2)
            node.qp({.qpn = 99, .local = 1, .remote = 2, .remote_qpn = 98, .pid = 100});
        NcclBuilder rank(node, {});
        const CallOptions call{.count = 1000};
        rank.comm().connection(11.2, SENDS_AT, true, 1, {17, 99}).call(12, call);
        rank.shape(12, 1, {call}, {rank.ring({.connection = SENDS_AT, .bytes = 4000})});
        rank.launch(12.1, 1, {call});
        const model::Model model = model_of({node.clock(20).end().bytes()});
        EXPECT_EQ(model.nccl.collectives.at(0).payload_bytes, 4000U);
        ASSERT_EQ(model.nccl.links.at(0).qps.size(), known);
        EXPECT_EQ(model.total.derived_tx_payload_bytes, 4000U);
        EXPECT_FALSE(model.total.derived_tx_wire_bytes) << "how it is split is not known";
        for (const QpIdentity &qp : model.nccl.qps)
            EXPECT_FALSE(qp.derived_payload_bytes);
    }
}

// Several queue pairs of a connection, on two devices: counted together, distinguished by tier.
TEST(NcclBytes, StripedOverQueuePairs) {
    NodeBuilder node({.flags = NCCL_NODE_FLAGS});
    constexpr QpOptions near{.qpn = 41, .local = 1, .remote = 2, .remote_qpn = 51};
    constexpr QpOptions far{.qpn = 42, .local = 11, .remote = 3, .remote_qpn = 52, .dev_index = 1};
    node.usual(1).device(1, "rxe1").port(1).gid(11, 1).qp(near).qp(far);
    NcclBuilder rank(node, {});
    const CallOptions call{.count = 1000};
    rank.comm().connection(11.2, SENDS_AT, true, 1, {41, 42}).call(12, call);
    rank.shape(12, 1, {call}, {rank.ring({.connection = SENDS_AT, .bytes = 4000})});
    rank.launch(12.1, 1, {call});
    node.wire(near, 15, {.requests = 3, .request_payload = 3000}, {});
    node.wire(far, 15.001, {.requests = 1, .request_payload = 1000}, {});
    node.clock(20).end();
    const model::Model model = model_of({node.bytes()}, R"({
  "collwire_topology": 1,
  "switches": [{"id": "spine0", "tier": "spine"}, {"id": "leaf0", "tier": "leaf", "uplinks": ["spine0"]},
               {"id": "leaf1", "tier": "leaf", "uplinks": ["spine0"]}],
  "ports": [{"host": "node0", "device": "rxe0", "port": 1, "ip": "10.0.0.1", "switch": "leaf0"},
            {"host": "node0", "device": "rxe1", "port": 1, "ip": "10.0.0.11", "switch": "leaf0"},
            {"host": "node1", "device": "rxe0", "port": 1, "ip": "10.0.0.2", "switch": "leaf0"},
            {"host": "node2", "device": "rxe0", "port": 1, "ip": "10.0.0.3", "switch": "leaf1"}]})");
    ASSERT_EQ(model.nccl.links.size(), 1U);
    EXPECT_EQ(model.nccl.links[0].qps.size(), 2U);
    const Operation &operation = model.nccl.collectives.at(0);
    EXPECT_EQ(operation.payload_bytes, 4000U);
    EXPECT_EQ(operation.sources, bit(ByteSource::Wire));
    const auto &tiers = model.nccl.bytes_by_tier.at({false, 0});
    EXPECT_EQ(tiers[model::index_of(topology::Tier::Leaf)],
              (std::pair<std::uint64_t, std::uint64_t>{3000, 3174}));
    EXPECT_EQ(tiers[model::index_of(topology::Tier::Spine)],
              (std::pair<std::uint64_t, std::uint64_t>{1000, 1058}));
    EXPECT_EQ(model.nccl.matrix.size(), 2U);
}

// Of an algorithm without a formula: measured on one host alone.
TEST(NcclBytes, SumOfKnownPartsIsPartial) {
    NodeBuilder counts({.flags = NCCL_NODE_FLAGS});
    NodeBuilder does_not(
        {.hostname = "node1", .session_id = 2, .flags = CW_NODE_FIRST_SEGMENT | CW_NODE_NCCL});
    counts.usual(1).qp(RING_QPS[0][0]);
    does_not.device(0, "mlx5_0", 0).port().gid(2).source("qp").qp(RING_QPS[1][0]);
    const CallOptions call{.count = 1000};
    const CallOptions captured{.count = 2000};
    std::vector<std::vector<std::byte>> captures;
    for (int i = 0; i < 2; ++i) {
        NodeBuilder &node = i == 0 ? counts : does_not;
        NcclBuilder rank(node, RingPair::of_rank({}, i));
        cw_nccl_op op = rank.ring({.connection = SENDS_AT, .bytes = 9000, .peer = 1 - i});
        op.pattern = CW_NCCL_PATTERN_NVLS_TREE;
        rank.comm().connection(11.2, SENDS_AT, true, 1 - i, {RING_QPS[i][0].qpn});
        rank.call(12, call).shape(12, 1, {call}, {op}).launch(12.1, 1, {call});
        rank.shape(16, 2, {captured}, {op});
        rank.launch(16, 2, {captured}, {.plan = 0x6000, .flags = CW_NCCL_LAUNCH_GRAPH});
    }
    counts.wire(RING_QPS[0][0], 13, {.requests = 4, .request_payload = 4000, .first = 12.1}, {});
    counts.wire(RING_QPS[0][0], 17, {.requests = 6, .request_payload = 6000, .first = 12.1}, {});
    captures.push_back(counts.clock(20).end().bytes());
    captures.push_back(does_not.clock(20).end().bytes());
    const model::Model model = model_of(captures);
    ASSERT_EQ(model.nccl.collectives.size(), 1U);
    const Operation &operation = model.nccl.collectives[0];
    EXPECT_EQ(operation.payload_bytes, 4000U);
    EXPECT_TRUE(operation.has(OPERATION_PARTIAL));
    ASSERT_EQ(model.nccl.unjoined.size(), 2U);
    EXPECT_EQ(model.nccl.unjoined[0].payload_bytes, 2000U);
    EXPECT_FALSE(model.nccl.unjoined[1].payload_bytes);
}

TEST(NcclBytes, WireBytesOfAPartAreNotTheWhole) {
    MatrixCell cell;
    cell.add(1000, 1100);
    EXPECT_EQ(cell.wire_bytes, 1100U);
    cell.add(500, std::nullopt);
    EXPECT_FALSE(cell.wire_bytes);
    cell.add(1000, 1100);
    EXPECT_FALSE(cell.wire_bytes);
    EXPECT_EQ(cell.payload_bytes, 2500U);
}

// Two connections over the same queue pairs, as NCCL shares them between ranks of a node.
TEST(NcclBytes, SharedQueuePairs) {
    NodeBuilder node({.flags = NCCL_NODE_FLAGS});
    node.usual(1).qp(RING_QPS[0][0]);
    NcclBuilder rank(node, {.n_ranks = 4});
    const CallOptions one{.func = CW_NCCL_SEND, .count = 100, .root = 2};
    const CallOptions other{.func = CW_NCCL_SEND, .count = 200, .root = 3};
    rank.comm()
        .connection(11.2, SENDS_AT, true, 2, {17}, 0, CW_NCCL_CONNECTION_SHARED)
        .connection(11.2, SENDS_AT + 8, true, 3, {17}, 0, CW_NCCL_CONNECTION_SHARED)
        .call(12, one)
        .call(12.001, other);
    rank.shape(12, 1, {one, other},
               {NcclBuilder::p2p(SENDS_AT, true, 2, 400, 0),
                NcclBuilder::p2p(SENDS_AT + 8, true, 3, 800, 1)});
    rank.launch(12.1, 1, {one, other});
    node.wire(RING_QPS[0][0], 15, {.requests = 2, .request_payload = 1200}, {}).clock(20).end();
    const model::Model model = model_of({node.bytes()});
    ASSERT_EQ(model.nccl.links.size(), 1U);
    EXPECT_EQ(model.nccl.links[0].connections.size(), 2U);
    ASSERT_EQ(model.nccl.p2p.size(), 2U);
    EXPECT_EQ(model.nccl.p2p[0].payload_bytes, 400U);
    EXPECT_EQ(model.nccl.p2p[1].payload_bytes, 800U);
    EXPECT_EQ(of_rung(model, Rung::Exact), 1200U);
    EXPECT_EQ(of_source(model, ByteSource::Wire), 1200U);
}

// PXN: the proxy of another rank of the node sends, over its own queue pair.
// The record of the sender's connection was lost, the receiver's is here.
TEST(NcclBytes, ConnectionKnownFromItsOtherEndOnly) {
    NodeBuilder sender({.flags = NCCL_NODE_FLAGS});
    NodeBuilder receiver({.hostname = "node1", .session_id = 2, .flags = NCCL_NODE_FLAGS});
    sender.usual(1).qp(RING_QPS[0][0]);
    receiver.usual(2).qp(RING_QPS[1][1]);
    NcclBuilder zero(sender, {});
    NcclBuilder one(receiver, {.pid = 200, .rank = 1});
    zero.comm();
    one.comm().connection(11.2, RECEIVES_AT, false, 0, {18});
    sender.wire(RING_QPS[0][0], 15, {.requests = 4, .request_payload = 4000}, {}).clock(20).end();
    receiver.wire(RING_QPS[1][1], 15, {.requests = 1, .request_payload = 64}, {}).clock(20).end();
    const model::Model model = model_of({sender.bytes(), receiver.bytes()});
    const auto &qp = qp_of(model, "node0", 17);
    const QpIdentity &identity = model.nccl.qps[static_cast<std::size_t>(&qp - model.qps.data())];
    EXPECT_EQ(identity.role, Role::Data);
    EXPECT_EQ(identity.rung, Rung::Inferred);
    const Link &link = model.nccl.links.at(identity.link);
    EXPECT_EQ(link.rank, 0);
    EXPECT_EQ(link.peer, 1);
    EXPECT_EQ(of_rung(model, Rung::Process), 4000U) << "of which operation is not known";
    ASSERT_EQ(model.nccl.matrix.size(), 1U);
    EXPECT_EQ(model.nccl.matrix.begin()->second.payload_bytes, 4000U);
    EXPECT_EQ(model.nccl.control.clear_to_send_payload_bytes, 64U);
}

// A queue pair number is used again: the connection is of the one that lived then.
TEST(NcclBytes, ReusedNumbersAndAddressesAreSeparated) {
    NodeBuilder node({.flags = NCCL_NODE_FLAGS});
    QpOptions first = RING_QPS[0][0];
    QpOptions second = first;
    first.created = 10.5;
    second.created = 14;
    node.usual(1).qp(first);
    NcclBuilder a(node, {.created = 10.6});
    const CallOptions call{.count = 1000};
    a.comm().connection(11, SENDS_AT, true, 1, {17}).call(11, call);
    a.shape(11, 1, {call}, {a.ring({.connection = SENDS_AT, .bytes = 4000})});
    a.launch(11.1, 1, {call});
    node.wire(first, 12, {.requests = 1, .request_payload = 4000}, {}).destroy(first, 13);
    a.end(13);
    node.qp(second);
    NcclBuilder b(node, {.hash = 0x77, .created = 14.1});
    const CallOptions small{.count = 10};
    b.comm().connection(14.2, SENDS_AT, true, 1, {17}).call(15, small);
    b.shape(15, 2, {small}, {b.ring({.connection = SENDS_AT, .bytes = 40})});
    b.launch(15.1, 2, {small});
    node.wire(second, 16, {.requests = 1, .request_payload = 40}, {}).clock(20).end();
    const model::Model model = model_of({node.bytes()});
    ASSERT_EQ(model.nccl.links.size(), 2U);
    ASSERT_EQ(model.nccl.collectives.size(), 2U);
    EXPECT_EQ(model.nccl.collectives[0].payload_bytes, 4000U);
    EXPECT_EQ(model.nccl.collectives[1].payload_bytes, 40U);
    EXPECT_NE(model.nccl.collectives[0].comm, model.nccl.collectives[1].comm);
    EXPECT_EQ(of_rung(model, Rung::Exact), 4040U);
}

// Four channels, bit-reversed as before 2.28: which part is the shorter one shows from a receive
// that has one part alone.
TEST(NcclBytes, PartsOfASendOverChannels) {
    const auto payload_by_channel = [](bool has_short_one) {
        RingPair ring({.version = 22403, .p2p_channels = 4});
        const CallOptions call{.func = CW_NCCL_SEND, .count = 6000, .root = 1};
        const CallOptions small{.func = CW_NCCL_SEND, .count = 10, .root = 1};
        const auto op = [](std::uint64_t bytes, std::uint8_t channel) {
            cw_nccl_op made = NcclBuilder::p2p(SENDS_AT + channel, true, 1, bytes);
            made.channel = channel;
            made.chunk_bytes = 4096;
            made.nsteps = static_cast<std::uint32_t>((bytes + 4095) / 4096);
            made.nbytes = std::min<std::uint64_t>(bytes, 4096);
            return made;
        };
        for (std::uint8_t channel = 1; channel < 4; ++channel)
            ring.rank[0].connection(11.2, SENDS_AT + channel, true, 1, {17}, channel);
        // 24000 bytes: two parts of 12288 and 11712, as many messages each. Channel 3 is the first.
        ring.rank[0].call(12, call).shape(12, 71, {call}, {op(11712, 1), op(12288, 3)});
        ring.rank[0].launch(12.1, 71, {call});
        if (has_short_one)
            ring.rank[0]
                .call(13, small)
                .shape(13, 72, {small}, {op(40, 3)})
                .launch(13.1, 72, {small});
        const model::Model model = model_of(ring.captures());
        std::map<std::uint8_t, std::pair<std::uint64_t, bool>> found;
        for (const ShapeOp &of : model.nccl.shapes.at(0).ops)
            found[of.channel] = {of.payload_bytes, of.is_bound};
        return found;
    };
    const auto known = payload_by_channel(true);
    EXPECT_EQ(known.at(3), std::pair(std::uint64_t{12288}, false));
    EXPECT_EQ(known.at(1), std::pair(std::uint64_t{11712}, false));
    EXPECT_TRUE(payload_by_channel(false).at(1).second);
}

// Broadcasts of a group are one operation on each connection: what of it is whose follows from the
// ring, and, where that is not known, there is a bound.
TEST(NcclBytes, GroupedBroadcasts) {
    for (const bool knows_ring : {true, false}) {
        RingPair ring({.version = 23203});
        const CallOptions calls[2] = {{.func = CW_NCCL_BROADCAST, .count = 1000, .root = 0},
                                      {.func = CW_NCCL_BROADCAST, .count = 500, .root = 1}};
        for (int i = 0; i < 2; ++i) {
            NcclBuilder &rank = ring.rank[i];
            if (knows_ring)
                rank.channel(11.1, 0, {i, 1 - i});
            std::vector<cw_nccl_op> ops;
            for (const bool send : {false, true}) {
                cw_nccl_op op = rank.ring({.connection = send ? SENDS_AT : RECEIVES_AT,
                                           .bytes = 4096,
                                           .task = CW_NCCL_NO_TASK,
                                           .peer = 1 - i},
                                          CW_NCCL_ALL_GATHER_V);
                op.channel_bytes = 0;
                op.algorithm = 0; // it does not set it
                ops.push_back(op);
            }
            for (const CallOptions &call : calls)
                rank.call(12, call);
            rank.shape(12, 73, {calls[0], calls[1]}, ops, 1);
            rank.launch(12.1, 73, {calls[0], calls[1]}, {.launched = 0});
            ring.sends(i, i == 0 ? 4000 : 2000);
        }
        ring.sample(20);
        const model::Model model = model_of(ring.captures());
        ASSERT_EQ(model.nccl.collectives.size(), 2U);
        for (const Operation &operation : model.nccl.collectives) {
            EXPECT_EQ(operation.func, CW_NCCL_BROADCAST);
            EXPECT_EQ(operation.algorithm, CW_NCCL_RING);
            // What was measured is of both, and nothing shows how much of it is of which.
            EXPECT_EQ(operation.rung, knows_ring ? Rung::Exact : Rung::Inferred)
                << operation.payload_bytes << " " << operation.flags;
            if (knows_ring) {
                EXPECT_EQ(operation.payload_bytes, operation.count * 4);
            }
        }
        EXPECT_TRUE(model.nccl.unjoined.empty());
    }
}

// One of which no more than a bound is known has what was carried up to a pause. What is none by
// the recorder's own interval is none.
TEST(NcclBytes, PauseIsLongerThanTheSamplingInterval) {
    struct Case {
        double interval;
        double gap_begin; // up to the last sample; 0: none
        Rung rung;
    };
    for (const auto &[interval, gap_begin, rung] :
         {Case{1, 0, Rung::Exact}, Case{2, 0, Rung::Inferred}, Case{0, 0, Rung::Inferred},
          Case{1, 15, Rung::Inferred}}) {
        SCOPED_TRACE(interval);
        NodeBuilder node(
            {.flags = NCCL_NODE_FLAGS | CW_NODE_SOCKETS, .sample_interval_ns = seconds(interval)});
        node.usual(1);
        NcclBuilder rank(node, {});
        const CallOptions call{.count = 1000};
        cw_nccl_op op = rank.ring({.connection = SENDS_AT, .bytes = 9000});
        op.pattern = CW_NCCL_PATTERN_NVLS_TREE;
        rank.comm().socket_connection(11.2, SENDS_AT, true, 1, 33);
        rank.call(12, call).shape(12, 1, {call}, {op}).launch(12.1, 1, {call});
        rank.socket(13, 33, 1000).socket(15, 33, 3000);
        rank.call(15.5, call).launch(15.6, 1, {call}).socket(17, 33, 5000);
        if (gap_begin != 0)
            node.sample_gap(gap_begin, 17);
        node.clock(20).end();
        const model::Model model = model_of({node.bytes()});
        EXPECT_EQ(model.nccl.collectives.at(0).rung, rung);
    }
}

// A segment of the recording is not here.
TEST(NcclBytes, MissingSamplesAreNotAPause) {
    std::vector<std::vector<std::byte>> captures;
    for (const std::uint32_t segment : {0U, 2U}) {
        NodeBuilder node({.segment = segment,
                          .start = segment == 0 ? 10.0 : 17.0,
                          .flags = CW_NODE_NCCL | CW_NODE_SOCKETS |
                                   (segment == 0 ? std::uint32_t{CW_NODE_FIRST_SEGMENT} : 0U)});
        NcclBuilder rank(node, {});
        const CallOptions call{.count = 1000};
        if (segment == 0) {
            cw_nccl_op op = rank.ring({.connection = SENDS_AT, .bytes = 9000});
            op.pattern = CW_NCCL_PATTERN_NVLS_TREE;
            rank.comm().socket_connection(11.2, SENDS_AT, true, 1, 33);
            rank.call(12, call).shape(12, 1, {call}, {op}).launch(12.1, 1, {call});
            rank.socket(13, 33, 1000).call(14, call).launch(14.1, 1, {call});
        } else {
            rank.socket(17.1, 33, 5000);
            node.clock(20).end();
        }
        captures.push_back(node.bytes());
    }
    const model::Model model = model_of(captures);
    EXPECT_EQ(model.nccl.collectives.at(0).rung, Rung::Inferred);
}

// A sender that is in no capture: what was received is reported.
TEST(NcclBytes, OnlyTheReceiverIsCaptured) {
    NodeBuilder node({.hostname = "node1", .session_id = 2, .flags = NCCL_NODE_FLAGS});
    node.usual(2).qp(RING_QPS[1][1]);
    NcclBuilder one(node, {.pid = 200, .rank = 1});
    one.comm().connection(11.2, RECEIVES_AT, false, 0, {18});
    node.wire(RING_QPS[1][1], 15, {.requests = 1, .request_payload = 64},
              {.requests = 4, .request_payload = 4000});
    node.clock(20).end();
    const model::Model model = model_of({node.bytes()});
    ASSERT_EQ(model.nccl.matrix.size(), 1U);
    EXPECT_EQ(model.nccl.matrix.begin()->first.source, 0);
    EXPECT_EQ(model.nccl.matrix.begin()->first.destination, 1);
    EXPECT_EQ(model.nccl.matrix.begin()->second.payload_bytes, 4000U);
    EXPECT_EQ(of_rung(model, Rung::Process), 0U) << "sent by no captured rank";
}

} // namespace
} // namespace collwire::nccl
