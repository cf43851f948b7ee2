// SPDX-License-Identifier: Apache-2.0
// Bytes of sockets: whose they are, and which sockets are a connection's.
#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_connection_records.h"
#include "collwire/nccl_launch_records.h"
#include "collwire/node_records.h"
#include "collwire/record_kinds.h"
#include "collwire/socket_records.h"
#include "correlate/nccl/gather.h"
#include "tests/support/model_of.h"
#include "tests/support/nccl_builder.h"
#include "tests/support/nccl_model.h"

namespace collwire::nccl {
namespace {

using namespace collwire::test;

constexpr unsigned bit(ByteSource source) {
    return 1U << static_cast<unsigned>(source);
}

// net_socket: 4 bytes of size before each message, and a greeting, are no payload.
TEST(NcclSockets, SocketsHaveTheirBytes) {
    NodeBuilder node({.flags = NCCL_NODE_FLAGS | CW_NODE_SOCKETS});
    node.usual(1);
    NcclBuilder rank(node, {});
    const CallOptions call{.count = 1000};
    rank.comm().socket_connection(11.2, SENDS_AT, true, 1, 33);
    rank.call(12, call).shape(12, 1, {call}, {rank.ring({.connection = SENDS_AT, .bytes = 4000})});
    rank.launch(12.1, 1, {call}).call(16, call).launch(16.1, 1, {call});
    rank.socket(12.5, 33, 13 + 4 + 4000).socket(17, 33, 13 + 2 * 4004);
    rank.socket(17, 99, 500, 3000, 4000); // bootstrap
    node.clock(20).end();
    const model::Model model = model_of({node.bytes()});
    ASSERT_EQ(model.nccl.collectives.size(), 2U);
    for (const Operation &operation : model.nccl.collectives)
        EXPECT_EQ(operation.payload_bytes, 4000U);
    EXPECT_EQ(of_rung(model, Rung::Exact), 8000U);
    EXPECT_EQ(of_rung(model, Rung::Inferred), 0U);
    EXPECT_EQ(of_rung(model, Rung::Process), 0U);
    EXPECT_EQ(model.nccl.control.socket_header_bytes, 13 + 2 * 4U);
    EXPECT_EQ(model.nccl.control.other_socket_bytes, 500U);
    EXPECT_EQ(model.nccl.matrix.begin()->first.transport, CW_NCCL_TRANSPORT_SOCKET);
    EXPECT_FALSE(model.nccl.matrix.begin()->second.wire_bytes);
}

// Before each message its size is sent, whether or not there is a formula.
TEST(NcclSockets, SizeHeadersAreNotPayload) {
    for (const std::uint8_t slice_steps : {std::uint8_t{2}, std::uint8_t{3}}) {
        NodeBuilder node({.flags = NCCL_NODE_FLAGS | CW_NODE_SOCKETS});
        node.usual(1);
        NcclBuilder rank(node, {});
        const CallOptions call{.count = 1000};
        cw_nccl_op op = rank.ring({.connection = SENDS_AT, .bytes = 9000});
        op.pattern = CW_NCCL_PATTERN_NVLS_TREE;
        op.nsteps = 8;
        op.slice_steps = slice_steps;
        rank.comm().socket_connection(11.2, SENDS_AT, true, 1, 33);
        rank.call(12, call).shape(12, 1, {call}, {op}).launch(12.1, 1, {call});
        const std::uint64_t messages = (8U + slice_steps - 1) / slice_steps;
        rank.socket(13, 33, 4000 + 4 * messages).end(19);
        node.clock(20).end();
        const model::Model model = model_of({node.bytes()});
        const Operation &operation = model.nccl.collectives.at(0);
        EXPECT_EQ(operation.payload_bytes, 4000U);
        EXPECT_EQ(operation.rung, slice_steps == 2 ? Rung::Exact : Rung::Inferred);
        EXPECT_EQ(model.nccl.control.socket_header_bytes, 4 * messages);
        EXPECT_EQ(of_rung(model, operation.rung), 4000U);
    }
}

// Sizes of messages that were not sent are in no sum, and hide no bytes that were.
TEST(NcclSockets, SizeHeadersOfUnsentMessagesDoNotCount) {
    for (const bool is_bound : {false, true}) {
        SCOPED_TRACE(is_bound);
        NodeBuilder node({.flags = NCCL_NODE_FLAGS | CW_NODE_SOCKETS});
        node.usual(1);
        NcclBuilder rank(node, {});
        const CallOptions first{.count = 1000}, last{.count = 3000};
        cw_nccl_op op = rank.ring({.connection = SENDS_AT, .bytes = 4'000'000});
        op.nsteps = 1000;
        op.slice_steps = 1;
        if (is_bound)
            op.pattern = CW_NCCL_PATTERN_NVLS_TREE;
        rank.comm().socket_connection(11.2, SENDS_AT, true, 1, 33);
        rank.call(12, first)
            .shape(12, 1, {first}, {rank.ring({.connection = SENDS_AT, .bytes = 4000})})
            .launch(12.1, 1, {first});
        // More than the first one makes: of no operation.
        rank.socket(13, 33, 4 + 4000 + 5000).socket(18, 33, 4 + 4000 + 5000);
        rank.call(19, last).shape(19, 2, {last}, {op}).launch(19.1, 2, {last});
        rank.socket(20, 33, 4 + 4000 + 5000);
        const model::Model model = model_of({node.clock(20).end().bytes()});
        EXPECT_EQ(model.nccl.control.socket_header_bytes, 4U);
        EXPECT_EQ(of_rung(model, Rung::Exact) + of_rung(model, Rung::Inferred) +
                      of_rung(model, Rung::Process),
                  9000U);
    }
}

// Of an operation that was under way when the recording ended.
TEST(NcclSockets, SizeHeaderOfAMessageInFlightCounts) {
    NodeBuilder node({.flags = NCCL_NODE_FLAGS | CW_NODE_SOCKETS});
    node.usual(1);
    NcclBuilder rank(node, {});
    const CallOptions call{.count = 1000};
    rank.comm().socket_connection(11.2, SENDS_AT, true, 1, 33);
    rank.shape(12, 1, {call}, {rank.ring({.connection = SENDS_AT, .bytes = 4000})});
    rank.call(12, call).launch(12.1, 1, {call}).call(19, call).launch(19.1, 1, {call});
    rank.socket(18, 33, 4004).socket(20, 33, 4004 + 1500);
    const model::Model model = model_of({node.clock(20).end().bytes()});
    EXPECT_EQ(of_rung(model, Rung::Exact), 4000 + 1496U);
    EXPECT_EQ(model.nccl.control.socket_header_bytes, 2 * 4U);
}

// The same descriptor, and the same addresses in NCCL: of a communicator that was destroyed, and of
// the next one. The socket of either may be closed before it is seen.
TEST(NcclSockets, ReusedDescriptorIsAnotherSocket) {
    constexpr std::uint32_t ENDED = CW_TCP_SOCKET_GONE | CW_TCP_SOCKET_FINAL;
    for (const unsigned seen : {1U, 2U, 3U}) {
        SCOPED_TRACE(seen);
        NodeBuilder node({.flags = NCCL_NODE_FLAGS | CW_NODE_SOCKETS});
        node.usual(1);
        const CallOptions call{.count = 1000};
        const auto live = [&](std::uint64_t hash, double time, std::uint64_t inode) {
            NcclBuilder rank(node, {.hash = hash, .created = time});
            rank.comm().socket_connection(time + 0.1, SENDS_AT, true, 1, 33, inode);
            rank.call(time + 0.1, call)
                .shape(time + 0.1, hash, {call},
                       {rank.ring({.connection = SENDS_AT, .bytes = 4000})})
                .launch(time + 0.2, hash, {call})
                .end(time + 0.4);
        };
        live(0x77, 12, 501);
        live(0x78, 12.5, 502);
        NcclBuilder rank(node, {});
        if ((seen & 1U) != 0)
            rank.socket(13, 33, 4 + 1000, 1000, 2000, ENDED, 501);
        if ((seen & 2U) != 0)
            rank.socket(13, 33, 4 + 3000, 1001, 2000, ENDED, 502);
        node.clock(20).end();
        const model::Model model = model_of({node.bytes()});
        ASSERT_EQ(model.nccl.links.size(), 2U);
        ASSERT_EQ(model.nccl.collectives.size(), 2U);
        for (const Operation &operation : model.nccl.collectives) {
            const bool is_first = model.nccl.communicators[operation.comm].hash == 0x77;
            const bool is_seen = (seen & (is_first ? 1U : 2U)) != 0;
            EXPECT_EQ(operation.payload_bytes, !is_seen ? 4000U : is_first ? 1000U : 3000U);
            EXPECT_EQ(operation.sources, bit(is_seen ? ByteSource::Wire : ByteSource::Derived));
        }
    }
}

// Its inode is used again.
TEST(NcclSockets, SocketThatClosedBeforeTheConnectionIsAnotherOne) {
    NodeBuilder node({.flags = NCCL_NODE_FLAGS | CW_NODE_SOCKETS});
    node.usual(1);
    NcclBuilder rank(node, {});
    const CallOptions call{.count = 1000};
    rank.comm().socket(11, 33, 700, 1000, 2000, CW_TCP_SOCKET_GONE | CW_TCP_SOCKET_FINAL, 501);
    rank.socket_connection(11.2, SENDS_AT, true, 1, 33, 501);
    rank.call(12, call).shape(12, 1, {call}, {rank.ring({.connection = SENDS_AT, .bytes = 4000})});
    rank.launch(12.1, 1, {call}).socket(12.5, 33, 13 + 4 + 4000, 1001, 2000, 0, 501);
    const model::Model model = model_of({node.clock(20).end().bytes()});
    ASSERT_EQ(model.nccl.links.at(0).sockets.size(), 1U);
    EXPECT_EQ(model.nccl.gathered.sockets[model.nccl.links[0].sockets[0]].last.local_port, 1001);
    EXPECT_EQ(model.nccl.collectives.at(0).sources, bit(ByteSource::Wire));
}

// Sockets of a job of a moment have their last counters alone.
TEST(NcclSockets, LastCountersAloneAreTheWholeSocket) {
    constexpr std::uint32_t ENDED = CW_TCP_SOCKET_GONE | CW_TCP_SOCKET_FINAL;
    for (const bool is_first_segment : {true, false}) {
        SCOPED_TRACE(is_first_segment);
        constexpr std::uint32_t FIRST = CW_NODE_FIRST_SEGMENT;
        const std::uint32_t flags = NCCL_NODE_FLAGS | CW_NODE_SOCKETS;
        NodeBuilder node({.segment = is_first_segment ? 0U : 2U,
                          .flags = is_first_segment ? flags : flags & ~FIRST});
        node.usual(1);
        NcclBuilder rank(node, {});
        const CallOptions call{.count = 1000};
        rank.comm().socket_connection(11.2, SENDS_AT, true, 1, 33);
        rank.call(12, call).shape(12, 1, {call},
                                  {rank.ring({.connection = SENDS_AT, .bytes = 4000})});
        rank.launch(12.1, 1, {call}).socket(12.2, 33, 13 + 4004, 1000, 2000, ENDED);
        node.clock(20).end();
        const model::Model model = model_of({node.bytes()});
        ASSERT_EQ(model.nccl.sockets.size(), 1U);
        EXPECT_EQ(model.nccl.sockets[0].tx_bytes, 13U + 4004);
        ASSERT_EQ(model.nccl.collectives.size(), 1U);
        EXPECT_EQ(model.nccl.collectives[0].payload_bytes, 4000U);
        if (is_first_segment) {
            EXPECT_EQ(model.nccl.collectives[0].sources, bit(ByteSource::Wire));
            EXPECT_EQ(of_rung(model, Rung::Exact), 4000U);
        }
    }
}

TEST(NcclSockets, LastCountersOfTwoSocketsWithOneInode) {
    constexpr std::uint32_t ENDED = CW_TCP_SOCKET_GONE | CW_TCP_SOCKET_FINAL;
    NodeBuilder node({.flags = NCCL_NODE_FLAGS | CW_NODE_SOCKETS});
    node.usual(1);
    NcclBuilder rank(node, {});
    rank.comm().socket(12, 33, 1000, 1000, 2000, ENDED).socket(13, 33, 7, 1001, 2000, ENDED);
    node.clock(20).end();
    const model::Model model = model_of({node.bytes()});
    ASSERT_EQ(model.nccl.sockets.size(), 2U);
    EXPECT_EQ(model.nccl.sockets[0].tx_bytes, 1000U);
    EXPECT_EQ(model.nccl.sockets[1].tx_bytes, 7U);
}

// What says no more than the descriptor may be of another socket.
TEST(NcclSockets, SocketWithoutAnInodeIsNotMatched) {
    NodeBuilder node({.flags = NCCL_NODE_FLAGS | CW_NODE_SOCKETS});
    node.usual(1);
    NcclBuilder rank(node, {});
    const CallOptions call{.count = 1000};
    auto connection = rank.socket_connection_record(11.2, SENDS_AT, true, 1, 33);
    connection.socket_inodes[0] = 0;
    rank.comm();
    node.add(connection);
    rank.call(12, call).shape(12, 1, {call}, {rank.ring({.connection = SENDS_AT, .bytes = 4000})});
    rank.launch(12.1, 1, {call}).socket(12.5, 33, 13 + 4 + 1000);
    node.clock(20).end();
    const model::Model model = model_of({node.bytes()});
    ASSERT_EQ(model.nccl.collectives.size(), 1U);
    EXPECT_EQ(model.nccl.collectives[0].payload_bytes, 4000U);
    EXPECT_EQ(model.nccl.collectives[0].sources, bit(ByteSource::Derived));
}

// Closed before its last counters were read.
TEST(NcclSockets, SocketClosedBeforeItsLastReadingIsDerived) {
    for (const bool is_final : {true, false}) {
        const std::uint32_t flags = CW_TCP_SOCKET_GONE | (is_final ? CW_TCP_SOCKET_FINAL : 0U);
        NodeBuilder node({.flags = NCCL_NODE_FLAGS | CW_NODE_SOCKETS});
        node.usual(1);
        NcclBuilder rank(node, {});
        const CallOptions call{.count = 1000};
        rank.comm().socket_connection(11.2, SENDS_AT, true, 1, 33);
        rank.call(12, call).shape(12, 1, {call},
                                  {rank.ring({.connection = SENDS_AT, .bytes = 4000})});
        rank.launch(12.1, 1, {call}).call(16, call).launch(16.1, 1, {call});
        rank.socket(12.5, 33, 13 + 4004).socket(17, 33, 13 + 4004 + 4 + 1000, 1000, 2000, flags);
        node.clock(20).end();
        const model::Model model = model_of({node.bytes()});
        ASSERT_EQ(model.nccl.collectives.size(), 2U);
        EXPECT_EQ(model.nccl.collectives[1].payload_bytes, is_final ? 1000U : 4000U);
        EXPECT_EQ(model.nccl.collectives[1].sources,
                  bit(is_final ? ByteSource::Wire : ByteSource::Derived));
    }
}

// The recorder came in the middle of a socket's life: what it carried before is not counted.
TEST(NcclSockets, PreexistingSocketCountsFromItsFirstSample) {
    NodeBuilder node({.flags = NCCL_NODE_FLAGS | CW_NODE_SOCKETS});
    node.usual(1);
    NcclBuilder rank(node, {.flags = CW_NCCL_COMM_OUTSIDE | CW_NCCL_COMM_LAUNCHED, .launched = 7});
    const CallOptions call{.count = 1000};
    rank.comm().socket_connection(11, SENDS_AT, true, 1, 33).socket(11.5, 33, 1'000'000);
    rank.call(12, call).shape(12, 1, {call}, {rank.ring({.connection = SENDS_AT, .bytes = 4000})});
    rank.launch(12.1, 1, {call}, {.launched = 8}).socket(17, 33, 1'000'000 + 4004);
    node.clock(20).end();
    const model::Model model = model_of({node.bytes()});
    ASSERT_EQ(model.nccl.collectives.size(), 1U);
    EXPECT_EQ(model.nccl.collectives[0].seq, 7U);
    EXPECT_EQ(model.nccl.collectives[0].payload_bytes, 4000U);
    EXPECT_EQ(model.nccl.collectives[0].sources, bit(ByteSource::Wire));
    EXPECT_EQ(of_rung(model, Rung::Exact), 4000U);
    EXPECT_EQ(of_rung(model, Rung::Process), 0U);
}

// The recorder of one end stopped and came back: both of its records are of the socket at the other
// end, and that one is with the one that it shares most of its time with.
TEST(NcclSockets, OtherEndMayBeInTwoRecordings) {
    const auto recorded = [](bool is_near, std::uint64_t session, double from, double until,
                             std::uint32_t pid) {
        NodeBuilder node({.hostname = is_near ? "node0" : "node1",
                          .session_id = session,
                          .start = from,
                          .flags = NCCL_NODE_FLAGS | CW_NODE_SOCKETS});
        node.usual(is_near ? 1 : 2);
        NcclBuilder rank(node, {.pid = pid, .rank = is_near ? 0 : 1, .created = from});
        for (const double time : {from + 0.5, until - 0.5}) {
            cw_tcp_socket socket = rank.socket_record(time, 33, 1000);
            if (!is_near) {
                std::swap(socket.local_address, socket.remote_address);
                std::swap(socket.local_port, socket.remote_port);
            }
            node.add(socket);
        }
        return node.clock(until).end(until).bytes();
    };
    for (const bool is_same : {true, false}) {
        const model::Model model =
            model_of({recorded(true, 1, 10, 30, 100), recorded(false, 2, 10, 15, 200),
                      recorded(false, 3, 16, 30, is_same ? 200U : 201U)});
        ASSERT_EQ(model.nccl.sockets.size(), 3U);
        for (Index index = 0; index < 3; ++index) {
            const Index session = model.nccl.gathered.sockets[index].session;
            const bool is_near = model.hosts[model.sessions[session].host].name == "node0";
            const Index peer = model.nccl.sockets[index].peer;
            EXPECT_EQ(peer != NONE, is_same || !is_near);
            if (peer != NONE && is_near) {
                EXPECT_EQ(model.nccl.gathered.sockets[peer].first.header.time_ns, seconds(16.5));
            }
            EXPECT_EQ(model.nccl.sockets[index].remote_host, is_near ? "node1" : "node0");
        }
    }
}

// What NCCL sends outside its connections, both ways over a socket: each byte is its sender's.
TEST(NcclSockets, ClosedSocketsAreControlTraffic) {
    RingPair ring;
    ring.rank[0].closed_socket(12, CW_NCCL_SOCKET_BOOTSTRAP, 1000, 501);
    ring.rank[1].closed_socket(12, CW_NCCL_SOCKET_BOOTSTRAP, 24, 502);
    // The same number of another socket later on, and of another process.
    ring.rank[0].closed_socket(13, CW_NCCL_SOCKET_BOOTSTRAP, 7, 501);
    ring.rank[1].closed_socket(13, CW_NCCL_SOCKET_PROXY, 300, 501);
    ring.rank[1].closed_socket(14, CW_NCCL_SOCKET_NETWORK_SETUP, 0, 503);
    ring.rank[1].closed_socket(14, 77, 1'000'000, 504);
    auto captures = ring.captures();
    for (const std::size_t copies : {0U, 1U}) {
        SCOPED_TRACE(copies);
        for (std::size_t i = 0; i < copies; ++i)
            captures.push_back(captures[0]);
        const model::Model model = model_of(captures);
        const auto &sockets = model.nccl.control.sockets;
        EXPECT_EQ(sockets[CW_NCCL_SOCKET_BOOTSTRAP].sockets, 3U);
        EXPECT_EQ(sockets[CW_NCCL_SOCKET_BOOTSTRAP].payload_bytes, 1031U);
        EXPECT_EQ(sockets[CW_NCCL_SOCKET_PROXY].sockets, 1U);
        EXPECT_EQ(sockets[CW_NCCL_SOCKET_PROXY].payload_bytes, 300U);
        EXPECT_EQ(sockets[CW_NCCL_SOCKET_NETWORK_SETUP].sockets, 1U);
        EXPECT_EQ(sockets[CW_NCCL_SOCKET_NETWORK_SETUP].payload_bytes, 0U);
        EXPECT_EQ(sockets[CW_NCCL_SOCKET_RAS].sockets, 0U);
        EXPECT_FALSE(model.nccl.control.other_socket_bytes);
        EXPECT_EQ(model.total.tcp.sockets, 0U);
    }
}

TEST(NcclSockets, ClosedSocketsOutsideARecordingDoNotCount) {
    const auto recorded = [](std::uint64_t session, double until) {
        NodeBuilder node({.session_id = session, .flags = NCCL_NODE_FLAGS | CW_NODE_SOCKETS});
        NcclBuilder rank(node.usual(1), {});
        rank.comm().closed_socket(11, CW_NCCL_SOCKET_PROXY, 100);
        // After its end, and a connection's.
        rank.closed_socket(until + 0.1, CW_NCCL_SOCKET_PROXY, 10'000);
        rank.socket_connection(11.2, SENDS_AT, true, 1, 33).socket(12, 33, 50);
        rank.closed_socket(13, CW_NCCL_SOCKET_PROXY, 1'000'000, SOCKET_INODES + 33);
        return node.clock(until).end(until).bytes();
    };
    // The shorter one of the same host is in no sum.
    const model::Model model = model_of({recorded(1, 15), recorded(2, 20)});
    EXPECT_EQ(model.nccl.control.sockets[CW_NCCL_SOCKET_PROXY].sockets, 1U);
    EXPECT_EQ(model.nccl.control.sockets[CW_NCCL_SOCKET_PROXY].payload_bytes, 100U);
}

TEST(NcclSockets, ClosedSocketsAreBounded) {
    auto record = make_record<cw_nccl_socket>(CW_KIND_NCCL_SOCKET, seconds(12), 0);
    record.type = CW_NCCL_SOCKET_BOOTSTRAP;
    Gather gather;
    gather.begin_capture();
    const auto add = [&] {
        return gather.add(0, record.header, std::as_bytes(std::span(&record, 1)), true);
    };
    std::uint64_t taken = 0;
    for (std::uint64_t i = 0; i < MAX_OTHER_RECORDS; ++i)
        taken += add() ? 1 : 0;
    EXPECT_EQ(taken, MAX_OTHER_RECORDS);
    EXPECT_FALSE(add());
    gather.begin_capture();
    EXPECT_TRUE(add());
}

} // namespace
} // namespace collwire::nccl
