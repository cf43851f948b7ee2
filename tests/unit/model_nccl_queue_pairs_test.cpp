// SPDX-License-Identifier: Apache-2.0
// Queue pairs of a process that are no connection of NCCL, or not found to be one.
#include "collwire/nccl_connection_records.h"
#include "collwire/nccl_launch_records.h"
#include "collwire/node_records.h"
#include "collwire/post_records.h"
#include "correlate/nccl/describe.h"
#include "tests/support/model_of.h"
#include "tests/support/nccl_builder.h"
#include "tests/support/nccl_model.h"

namespace collwire::nccl {
namespace {

using namespace collwire::test;

// What is not NCCL's connection in a process that runs NCCL is no more than the process's; a queue
// pair that is connected to itself is NCCL's flush; another process is none of its business.
TEST(NcclQueuePairs, OtherQueuePairs) {
    NodeBuilder node({.flags = NCCL_NODE_FLAGS});
    constexpr QpOptions other{.qpn = 61, .local = 1, .remote = 9, .remote_qpn = 71};
    constexpr QpOptions flush{.qpn = 62, .local = 1, .remote = 1, .remote_qpn = 62};
    constexpr QpOptions storage{.qpn = 63, .local = 1, .remote = 9, .remote_qpn = 73, .pid = 999};
    node.usual(1).qp(other).qp(flush).qp(storage);
    NcclBuilder(node, {}).comm();
    node.wire(other, 15, {.requests = 1, .request_payload = 700}, {});
    node.wire(flush, 15, {.requests = 5}, {});
    node.wire(storage, 15, {.requests = 1, .request_payload = 10'000}, {}).clock(20).end();
    const model::Model model = model_of({node.bytes()});
    const auto role = [&](std::uint32_t qpn) {
        return model.nccl
            .qps[static_cast<std::size_t>(&qp_of(model, "node0", qpn) - model.qps.data())]
            .role;
    };
    EXPECT_EQ(role(61), Role::Other);
    EXPECT_EQ(role(62), Role::Flush);
    EXPECT_EQ(role(63), Role::None);
    EXPECT_EQ(of_rung(model, Rung::Process), 700U);
    EXPECT_EQ(model.nccl.control.flush_payload_bytes, 0U);
    EXPECT_EQ(model.nccl.control.flush_wire_bytes, 5 * FRAME_HEADERS);
}

// The event that the older one was destroyed was lost.
TEST(NcclQueuePairs, OfOneNumberTheNewerOneIsTheConnections) {
    NodeBuilder node({.flags = NCCL_NODE_FLAGS});
    node.usual(1).qp({.qpn = 17, .created = 10.5}).qp({.qpn = 17, .created = 11});
    NcclBuilder(node, {}).comm().connection(11.2, SENDS_AT, true, 1, {17});
    const model::Model model = model_of({node.clock(20).end().bytes()});
    ASSERT_EQ(model.qps.size(), 2U);
    ASSERT_EQ(model.nccl.links.at(0).qps.size(), 1U);
    EXPECT_EQ(model.qps[model.nccl.links[0].qps[0]].key.generation_ns, seconds(11));
}

// What operations put on it is computed; that its queue pairs sent the same is not known.
TEST(NcclQueuePairs, PluginBytesAreNotInTheSumsOfNcclsNetworks) {
    NodeBuilder node({.flags = CW_NODE_FIRST_SEGMENT | CW_NODE_POSTS | CW_NODE_NCCL});
    constexpr QpOptions of_plugin{.qpn = 61, .local = 1, .remote = 9, .remote_qpn = 71};
    node.device().port().gid(1).source("qp").source("posts").qp(of_plugin);
    NcclBuilder rank(node, {});
    const CallOptions call{.count = 1000};
    cw_nccl_connection connection = rank.socket_connection_record(11.2, SENDS_AT, true, 1, 0);
    connection.transport = CW_NCCL_TRANSPORT_PLUGIN;
    connection.n = connection.n_endpoints = 0;
    rank.comm().call(12, call);
    node.add(connection);
    rank.shape(12, 1, {call}, {rank.ring({.connection = SENDS_AT, .bytes = 4000})});
    rank.launch(12.1, 1, {call});
    node.posts(of_plugin, 15, CW_POST_WRITE_IMM, 1, 4000).clock(20).end();
    const model::Model model = model_of({node.bytes()});
    EXPECT_EQ(of_rung(model, Rung::Exact), 0U);
    EXPECT_EQ(of_rung(model, Rung::Process), 4000U);
    EXPECT_FALSE(model.nccl.totals.perhaps_counted_bytes);
    EXPECT_EQ(model.nccl.collectives.at(0).payload_bytes, 4000U);
    EXPECT_EQ(model.nccl.collectives.at(0).rung, Rung::Inferred);
    ASSERT_EQ(model.nccl.matrix.size(), 1U);
    EXPECT_EQ(model.nccl.matrix.begin()->first.transport, CW_NCCL_TRANSPORT_PLUGIN);
    EXPECT_EQ(model.nccl.matrix.begin()->second.payload_bytes, 4000U);
}

// The network reduces by ways that are not followed: that is not the same as nothing.
TEST(NcclQueuePairs, CollNetBytesAreUnknown) {
    constexpr std::uint64_t REDUCES_AT = 0x66000;
    RingPair ring;
    const CallOptions call{.func = CW_NCCL_ALL_REDUCE, .count = 1000};
    for (NcclBuilder &rank : ring.rank) {
        cw_nccl_connection connection =
            rank.socket_connection_record(11.3, REDUCES_AT, true, -1, 0);
        connection.transport = CW_NCCL_TRANSPORT_COLLNET;
        connection.net_comm = 0;
        connection.rank = connection.channel = connection.conn_index = connection.net_dev = -1;
        connection.n = connection.n_endpoints = 0;
        rank.node().add(connection);
        cw_nccl_op op =
            rank.ring({.connection = REDUCES_AT, .bytes = 4000, .peer = -1}, CW_NCCL_ALL_REDUCE);
        op.pattern = CW_NCCL_PATTERN_NVLS;
        op.algorithm = CW_NCCL_NVLS;
        rank.call(12, call).shape(12, 70, {call}, {op}).launch(12.1, 70, {call});
    }
    ring.all_gather(13, 1000).sample(20);
    const model::Model model = model_of(ring.captures());
    const Operation &reduced = collective(model, 0);
    EXPECT_TRUE(reduced.has(OPERATION_LAUNCHED));
    EXPECT_FALSE(reduced.has(OPERATION_PARTIAL)) << "all of it was seen";
    EXPECT_FALSE(reduced.has(OPERATION_PAYLOAD_KNOWN));
    EXPECT_FALSE(reduced.has(OPERATION_DATA_KNOWN));
    EXPECT_FALSE(reduced.has(OPERATION_WIRE_KNOWN));
    EXPECT_EQ(reduced.rung, Rung::Process);
    EXPECT_EQ(collective(model, 1).rung, Rung::Exact);
    EXPECT_EQ(of_rung(model, Rung::Exact), 2 * 4000U);
    EXPECT_EQ(model.nccl.totals.links_not_measured, 0U) << "it is not of NCCL's own networks";
    const auto parts = Parts(model).of(reduced);
    ASSERT_EQ(parts.size(), 2U);
    for (const Part &part : parts) {
        EXPECT_EQ(transport_name(model.nccl.links[part.link].transport), "CollNet");
        EXPECT_FALSE(part.share.is_known);
        EXPECT_EQ(part.peer, -1);
    }
}

// A connection of two queue pairs, of which `found` were found; the others are in the capture
// without anything that ties them to it.
TEST(NcclQueuePairs, MissingQueuePairsAreNotCountedTwice) {
    for (const std::uint64_t found : {0U, 1U}) {
        SCOPED_TRACE(found);
        NodeBuilder node({.flags = NCCL_NODE_FLAGS});
        constexpr QpOptions other{.qpn = 61, .local = 1, .remote = 9, .remote_qpn = 71};
        node.usual(1).qp(RING_QPS[0][0]).qp(other);
        NcclBuilder rank(node, {});
        const CallOptions call{.count = 1000};
        rank.comm().connection(11.2, SENDS_AT, true, 1, {found == 0 ? 98U : 17U, 99});
        rank.call(12, call).shape(12, 1, {call},
                                  {rank.ring({.connection = SENDS_AT, .bytes = 4000})});
        rank.launch(12.1, 1, {call});
        if (found != 0)
            node.wire(RING_QPS[0][0], 15, {.requests = 2, .request_payload = 2000}, {});
        node.wire(other, 15, {.requests = 4, .request_payload = 4000 - found * 2000}, {});
        node.clock(20).end();
        const model::Model model = model_of({node.bytes()});
        EXPECT_EQ(of_rung(model, Rung::Exact), 4000U);
        EXPECT_EQ(of_rung(model, Rung::Process), 0U);
        EXPECT_EQ(model.nccl.totals.perhaps_counted_bytes, 4000 - found * 2000);
        EXPECT_EQ(model.total.tx_payload_bytes, 4000U);
        EXPECT_FALSE(model.total.derived_tx_payload_bytes);
    }
}

// The receiver's end names the queue pair that was not found at the sender's.
TEST(NcclQueuePairs, MirroredConnectionIsNotCountedTwice) {
    RingPair ring;
    ring.rank[0].connection(11.3, SENDS_AT + 8, true, 1, {99}, 1);
    const CallOptions call{.count = 1000};
    ring.rank[0].call(12, call).shape(
        12, 1, {call}, {ring.rank[0].ring({.connection = SENDS_AT + 8, .bytes = 500})});
    ring.rank[0].launch(12.1, 1, {call});
    constexpr QpOptions sends{.qpn = 37, .local = 1, .remote = 2, .remote_qpn = 38, .pid = 100};
    constexpr QpOptions receives{.qpn = 38, .local = 2, .remote = 1, .remote_qpn = 37, .pid = 200};
    ring.node[0].qp(sends);
    ring.node[1].qp(receives);
    ring.rank[1].connection(11.3, RECEIVES_AT + 8, false, 0, {38}, 1);
    ring.node[0].wire(sends, 15, {.requests = 1, .request_payload = 500}, {});
    const model::Model model = model_of(ring.captures());
    EXPECT_EQ(of_rung(model, Rung::Exact), 500U);
    EXPECT_EQ(of_rung(model, Rung::Process), 0U);
    EXPECT_EQ(model.nccl.totals.perhaps_counted_bytes, 500U);
    ASSERT_EQ(model.nccl.matrix.size(), 1U);
    EXPECT_EQ(model.nccl.matrix.begin()->second.payload_bytes, 500U);
}

} // namespace
} // namespace collwire::nccl
