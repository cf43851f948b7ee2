// SPDX-License-Identifier: Apache-2.0
// Sums of what is no measured queue pair's: NCCL's sockets, what was computed, and what goes by
// ways that are not seen.
#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_connection_records.h"
#include "collwire/nccl_launch_records.h"
#include "collwire/node_records.h"
#include "collwire/record_kinds.h"
#include "tests/support/model_of.h"
#include "tests/support/nccl_builder.h"
#include "tests/support/nccl_model.h"
#include "tests/support/scenarios.h"

namespace collwire::nccl {
namespace {

using namespace collwire::test;

constexpr std::uint32_t FLAGS = NCCL_NODE_FLAGS | CW_NODE_SOCKETS;

const model::Sums &of_tier(const model::Model &model, topology::Tier tier) {
    return model.tiers[model::index_of(tier)];
}

TEST(NcclTransports, SocketsAreSeparateInEverySum) {
    const model::Model model = model_of(socket_job());
    ASSERT_EQ(model.nccl.sockets.size(), 8U);
    const model::TcpSums &tcp = model.total.tcp;
    EXPECT_EQ(tcp.sockets, 8U);
    EXPECT_EQ(tcp.tx_payload_bytes, 2 * 100'017U);
    EXPECT_EQ(tcp.rx_payload_bytes, 2 * 100'017U);
    EXPECT_EQ(tcp.retransmitted_bytes, 1448U);
    EXPECT_EQ(tcp.connections_without_bytes, 1U);
    EXPECT_EQ(tcp.derived_tx_payload_bytes, 3000U);
    EXPECT_EQ(model.total.tx_payload_bytes, 0U) << "of queue pairs";
    EXPECT_FALSE(model.total.derived_tx_payload_bytes);
    EXPECT_EQ(of_tier(model, topology::Tier::Leaf).tcp.tx_payload_bytes, 2 * 100'017U);
    EXPECT_EQ(of_tier(model, topology::Tier::Unknown).tcp.derived_tx_payload_bytes, 3000U)
        << "its addresses are not known";
    ASSERT_EQ(model.node_pairs.size(), 2U);
    EXPECT_EQ(model.node_pairs[0].source, "node0");
    EXPECT_EQ(model.node_pairs[0].destination, "node1");
    EXPECT_TRUE(model.node_pairs[0].destination_captured);
    EXPECT_EQ(model.node_pairs[0].all.tcp.tx_payload_bytes, 100'017U);
    EXPECT_EQ(model.node_pairs[0].all.tcp.derived_tx_payload_bytes, 3000U)
        << "by the rank of the peer";
    EXPECT_EQ(model.node_pairs[1].all.tcp.rx_payload_bytes, 100'017U);
    ASSERT_EQ(model.process_sums.size(), 2U);
    EXPECT_EQ(model.process_sums[0].all.tcp.tx_payload_bytes, 100'017U);
}

TEST(NcclTransports, EndsAndInterfaceOfASocket) {
    const model::Model model = model_of(socket_job());
    for (Index index = 0; index < model.nccl.sockets.size(); ++index) {
        const SocketIdentity &socket = model.nccl.sockets[index];
        const bool is_first = index < 4;
        EXPECT_EQ(socket.remote_host, is_first ? "node1" : "node0");
        ASSERT_NE(socket.peer, NONE);
        EXPECT_EQ(socket.tx_bytes, model.nccl.sockets[socket.peer].rx_bytes);
        EXPECT_EQ(socket.role, index % 2 == 0 ? CW_NCCL_ROLE_CONTROL : CW_NCCL_ROLE_DATA);
        ASSERT_NE(socket.port, NONE);
        EXPECT_EQ(model.devices[model.ports[socket.port].device].host, is_first ? 0U : 1U);
    }
    const model::PortBytes &bytes = model.ports[0].bytes;
    EXPECT_EQ(bytes.tcp_tx_bytes, 100'017 + 1448U) << "what was sent again went over it, too";
    EXPECT_EQ(bytes.tcp_rx_bytes, 100'017U);
    EXPECT_EQ(bytes.explained_tx_bytes, 0U);
}

// What it carried before the recording is of none of it.
TEST(NcclTransports, PreexistingSocketIsCounted) {
    NodeBuilder node({.flags = FLAGS});
    node.usual(1);
    NcclBuilder rank(node, {.flags = CW_NCCL_COMM_OUTSIDE | CW_NCCL_COMM_LAUNCHED, .launched = 7});
    rank.comm().socket_connection(11, SENDS_AT, true, 1, 33);
    auto before = rank.socket_record(11.5, 33, 1'000'000);
    before.retransmitted_bytes = 500;
    auto after = rank.socket_record(17, 33, 1'004'004);
    after.retransmitted_bytes = 560;
    node.add(before).add(after).clock(20).end();
    const model::Model model = model_of({node.bytes()});
    const SocketIdentity &socket = model.nccl.sockets.at(0);
    EXPECT_EQ(socket.tx_bytes, 4004U);
    EXPECT_EQ(socket.retransmitted_bytes, 60U);
    EXPECT_EQ(socket.counted_from_ns, seconds(11.5));
    EXPECT_EQ(socket.peer, NONE);
    EXPECT_EQ(model.node_pairs.at(0).destination, "10.0.0.2") << "in no capture";
    EXPECT_FALSE(model.node_pairs.at(0).destination_captured);
}

// A kernel that does not count what is sent.
TEST(NcclTransports, UnknownRetransmissionsAreNull) {
    NodeBuilder node({.flags = FLAGS});
    node.usual(1);
    NcclBuilder rank(node, {});
    rank.comm().socket_connection(11, SENDS_AT, true, 1, 33);
    auto socket = rank.socket_record(12, 33, 4004);
    socket.sent_bytes = 0;
    node.add(socket).clock(20).end();
    const model::Model model = model_of({node.bytes()});
    EXPECT_EQ(model.nccl.sockets.at(0).tx_bytes, 4004U);
    EXPECT_FALSE(model.nccl.sockets.at(0).retransmitted_bytes);
    EXPECT_FALSE(model.total.tcp.retransmitted_bytes);
}

// Nothing measures the queue pairs: what the operations come to is known all the same.
TEST(NcclTransports, ComputedBytesAreSeparate) {
    constexpr std::uint32_t UNWATCHED = CW_NODE_FIRST_SEGMENT | CW_NODE_NCCL;
    constexpr QpOptions QPS[2] = {{.qpn = 17, .local = 1, .remote = 2, .remote_qpn = 18},
                                  {.qpn = 18, .local = 2, .remote = 1, .remote_qpn = 17}};
    std::vector<std::vector<std::byte>> captures;
    for (int i = 0; i < 2; ++i) {
        NodeBuilder node({.hostname = i == 0 ? "node0" : "node1",
                          .session_id = static_cast<std::uint64_t>(i + 1),
                          .flags = UNWATCHED});
        node.device().port().gid(static_cast<std::uint8_t>(i + 1)).source("qp").qp(QPS[i]);
        NcclBuilder rank(node, {.rank = i});
        const CallOptions call{.count = 1000};
        rank.comm().connection(11.2, SENDS_AT, i == 0, 1 - i, {QPS[i].qpn}).call(12, call);
        rank.shape(12, 1, {call},
                   {rank.ring({.connection = SENDS_AT, .bytes = 4000, .peer = 1 - i})});
        rank.launch(12.1, 1, {call});
        node.clock(20).end();
        captures.push_back(node.bytes());
    }
    const model::Model model = model_of(captures);
    EXPECT_EQ(model.total.derived_tx_payload_bytes, 4000U);
    EXPECT_FALSE(model.total.tx_payload_bytes) << "nothing was measured";
    EXPECT_FALSE(model.total.tcp.is_used());
    EXPECT_EQ(of_tier(model, topology::Tier::Leaf).derived_tx_payload_bytes, 4000U);
    ASSERT_EQ(model.node_pairs.size(), 2U);
    EXPECT_EQ(model.node_pairs[0].all.derived_tx_payload_bytes, 4000U);
    EXPECT_FALSE(model.node_pairs[1].all.derived_tx_payload_bytes);
    EXPECT_EQ(model.nccl.qps[0].derived_payload_bytes, 4000U);
    EXPECT_FALSE(model.nccl.qps[1].derived_payload_bytes);
    // One message, and the receiver's entry that asks for it.
    constexpr std::uint64_t DATA_WIRE_BYTES = 4000 + 4 * 58 + 16 + 4;
    constexpr std::uint64_t CLEAR_TO_SEND_WIRE_BYTES = 64 + 58 + 16;
    EXPECT_EQ(model.nccl.qps[0].derived_wire_bytes, DATA_WIRE_BYTES);
    EXPECT_EQ(model.nccl.qps[1].derived_wire_bytes, CLEAR_TO_SEND_WIRE_BYTES);
    EXPECT_EQ(model.nccl.control.clear_to_send_derived_wire_bytes, CLEAR_TO_SEND_WIRE_BYTES);
    EXPECT_EQ(model.total.derived_tx_wire_bytes, DATA_WIRE_BYTES + CLEAR_TO_SEND_WIRE_BYTES);
    EXPECT_EQ(of_tier(model, topology::Tier::Leaf).derived_tx_wire_bytes,
              DATA_WIRE_BYTES + CLEAR_TO_SEND_WIRE_BYTES);
    EXPECT_EQ(model.node_pairs[1].all.derived_tx_wire_bytes, CLEAR_TO_SEND_WIRE_BYTES);
    EXPECT_FALSE(model.total.tx_wire_bytes);
    EXPECT_EQ(model.nccl.matrix.begin()->first.tier, topology::Tier::Leaf);
    EXPECT_TRUE(has_warning(model, "the payload of NCCL operations on them is computed"));
    // Of the communicator, by tier.
    const auto tier = model.nccl.tiers.find({0, topology::Tier::Leaf});
    ASSERT_NE(tier, model.nccl.tiers.end());
    EXPECT_EQ(tier->second.payload_bytes, 4000U);
    EXPECT_EQ(tier->second.wire_bytes, DATA_WIRE_BYTES);
}

// What goes from node to node without a proxy (GIN, copy engines) is not seen.
TEST(NcclTransports, OperationAcrossNodesWithoutProxyWorkIsUnknown) {
    for (const bool is_one_node : {false, true})
        for (const bool has_launch : {false, true}) {
            SCOPED_TRACE(is_one_node);
            RingPair ring({.n_nodes = is_one_node ? 1 : 2});
            const CallOptions call{.count = 1000};
            for (int i = 0; i < 2; ++i) {
                const std::int32_t other = 1 - i;
                const std::uint8_t func = i == 0 ? CW_NCCL_SEND : CW_NCCL_RECV;
                NcclBuilder &rank = ring.rank[i].call(12, call);
                if (has_launch)
                    rank.shape(12, 70, {call}, {})
                        .launch(12.001, 70, {call},
                                {.flags = CW_NCCL_LAUNCH_LAUNCHED | CW_NCCL_LAUNCH_LOCAL,
                                 .launched = 1});
                rank.call(13, {.count = 0})
                    .call(14, {.func = func, .count = 10, .root = other})
                    .call(15, {.func = func, .count = 0, .root = other})
                    .call(16, {.func = CW_NCCL_SEND, .count = 10, .root = i})
                    .call(16, {.func = CW_NCCL_RECV, .count = 10, .root = i})
                    .end(17); // no launch is to come
            }
            const model::Model model = model_of(ring.captures());
            const auto expect = [](const Operation &operation, bool is_known) {
                EXPECT_FALSE(operation.has(OPERATION_PARTIAL));
                EXPECT_EQ(operation.has(OPERATION_PAYLOAD_KNOWN), is_known);
                EXPECT_EQ(operation.has(OPERATION_DATA_KNOWN), is_known);
                EXPECT_EQ(operation.has(OPERATION_WIRE_KNOWN), is_known);
                EXPECT_EQ(operation.payload_bytes, 0U);
                EXPECT_EQ(operation.rung, is_known ? Rung::Exact : Rung::Process);
            };
            ASSERT_EQ(model.nccl.collectives.size(), 2U);
            expect(collective(model, 0), is_one_node);
            expect(collective(model, 1), true);
            ASSERT_EQ(model.nccl.p2p.size(), 4U);
            for (const Operation &operation : model.nccl.p2p)
                expect(operation, is_one_node || operation.count == 0 ||
                                      operation.source == operation.destination);
        }
}

// Ranks of one node, in a communicator over several.
TEST(NcclTransports, PairWithinANodeSendsNothing) {
    RingPair ring;
    for (int i = 0; i < 2; ++i) {
        cw_nccl_comm comm = ring.rank[i].comm_record();
        comm.comm += 0x100;
        comm.comm_hash += 1;
        comm.node = 1;
        ring.node[i].add(comm);
        auto call = make_record<cw_nccl_call>(CW_KIND_NCCL_CALL, seconds(12), 0);
        call.comm = comm.comm;
        call.tgid = comm.tgid;
        call.tid = 1;
        call.count = 10;
        call.root = 1 - i;
        call.func = i == 0 ? CW_NCCL_SEND : CW_NCCL_RECV;
        call.datatype = 7;
        ring.node[i].add(call);
    }
    const model::Model model = model_of(ring.captures());
    ASSERT_EQ(model.nccl.p2p.size(), 1U);
    EXPECT_FALSE(model.nccl.p2p[0].has(OPERATION_PARTIAL));
    EXPECT_TRUE(model.nccl.p2p[0].has(OPERATION_PAYLOAD_KNOWN));
    EXPECT_EQ(model.nccl.p2p[0].rung, Rung::Exact);
}

} // namespace
} // namespace collwire::nccl
