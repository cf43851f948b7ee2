// SPDX-License-Identifier: Apache-2.0
// Whole recordings of several nodes, for golden files and as seeds of the fuzzers.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "collwire/loss_records.h"
#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_connection_records.h"
#include "collwire/nccl_launch_records.h"
#include "collwire/node_records.h"
#include "collwire/port_records.h"
#include "collwire/post_records.h"
#include "collwire/record_kinds.h"
#include "collwire/socket_records.h"
#include "tests/support/nccl_builder.h"
#include "tests/support/node_builder.h"

namespace collwire::test {

using Captures = std::vector<std::vector<std::byte>>;

// Nothing goes wrong: node0 writes to node1 (same leaf) and node2 (another leaf), node1 reads from
// node0, node2 sends datagrams to both, node0 talks to itself; every frame is counted.
[[nodiscard]] inline Captures good_cluster() {
    constexpr QpOptions n0_to_n1{.qpn = 17, .local = 1, .remote = 2, .remote_qpn = 18};
    constexpr QpOptions n1_to_n0{.qpn = 18, .local = 2, .remote = 1, .remote_qpn = 17, .pid = 200};
    constexpr QpOptions n0_to_n2{.qpn = 19, .local = 1, .remote = 3, .remote_qpn = 20};
    constexpr QpOptions n2_to_n0{.qpn = 20, .local = 3, .remote = 1, .remote_qpn = 19, .pid = 300};
    constexpr QpOptions n0_left{
        .qpn = 24, .local = 1, .remote = 1, .remote_qpn = 25, .pid = 101, .pid_start_ns = 6 * NS};
    constexpr QpOptions n0_right{
        .qpn = 25, .local = 1, .remote = 1, .remote_qpn = 24, .pid = 101, .pid_start_ns = 6 * NS};
    constexpr QpOptions n2_datagrams{.qpn = 30, .local = 3, .pid = 301};

    constexpr Frames write{.requests = 1'048'576, .request_payload = 1'073'741'824, .first = 11.5};
    constexpr Frames answer{
        .responses = 65'536, .response_payload = 67'108'864, .acks = 16'384, .first = 11.6};
    constexpr Frames small{
        .requests = 4096, .request_payload = 4'194'304, .resent = 12, .first = 12};
    constexpr Frames acks{.acks = 64, .first = 12.1};
    constexpr std::uint64_t write_bytes = 1'048'576 * FRAME_HEADERS + 1'073'741'824;
    constexpr std::uint64_t answer_bytes = 65'536 * FRAME_HEADERS + 67'108'864 + 16'384 * ACK_FRAME;
    constexpr std::uint64_t small_bytes = 4096 * FRAME_HEADERS + 4'194'304 + 12 * RESENT_FRAME;

    NodeBuilder node0;
    node0.usual(1)
        .process(100, 5 * NS, "/usr/bin/python3", "/home/user/train.py")
        .process(101, 6 * NS, "ib_send_bw");
    node0.qp(n0_to_n1).qp(n0_to_n2).qp(n0_left).qp(n0_right);
    node0.wire(n0_to_n1, 20, write, answer).wire(n0_to_n2, 20, small, acks);
    node0.wire(n0_left, 20, {.requests = 100, .request_payload = 102'400}, {.acks = 2});
    node0.wire(n0_right, 20, {.acks = 2}, {.requests = 100, .request_payload = 102'400});
    node0.netdev(20, write_bytes + small_bytes + 4242, answer_bytes + 64 * ACK_FRAME + 3131)
        .clock(20)
        .end();

    NodeBuilder node1({.hostname = "node1", .session_id = 2, .clock_ahead = 0.001});
    node1.usual(2).process(200, 5 * NS, "/usr/bin/python3", "/home/user/train.py").qp(n1_to_n0);
    node1.wire(n1_to_n0, 20, answer, write)
        .netdev(20, answer_bytes + 1212, write_bytes + 2323)
        .clock(20)
        .end();

    NodeBuilder node2({.hostname = "node2", .session_id = 3});
    node2.usual(3).process(300, 5 * NS, "/usr/bin/python3", "/home/user/train.py").qp(n2_to_n0);
    node2.datagram_qp(n2_datagrams);
    node2.wire(n2_to_n0, 20, acks, small)
        .wire(n2_datagrams, 20, {.requests = 30, .request_payload = 30'000}, {});
    node2.ud_peer(n2_datagrams, 20, 1, 40, 10, 10 * 66 + 10'000, 10'000);
    node2.ud_peer(n2_datagrams, 20, 2, 41, 20, 20 * 66 + 20'000, 20'000);
    node2.netdev(20, 64 * ACK_FRAME + 30 * 66 + 30'000 + 999, small_bytes + 888).clock(20).end();
    return {node0.bytes(), node1.bytes(), node2.bytes()};
}

// Everything that can go wrong short of a file that is none: a capture cut short, loss, a path that
// dies silently, a link that goes down, a peer without a capture, posts without an owner, clocks
// apart, a source that is refused, a first segment missing.
[[nodiscard]] inline Captures troubled_cluster() {
    constexpr QpOptions n0_to_n1{.qpn = 17, .local = 1, .remote = 2, .remote_qpn = 18};
    constexpr QpOptions n1_to_n0{.qpn = 18, .local = 2, .remote = 1, .remote_qpn = 17, .pid = 200};
    constexpr QpOptions n0_to_far{.qpn = 21, .local = 1, .remote = 9, .remote_qpn = 77};

    NodeBuilder node0;
    node0.usual(1).source("posts", CW_SOURCE_REFUSED,
                          "libmlx5 is stripped of its build-id. Fix: install the distribution's");
    node0.process(100, 5 * NS, "app").qp(n0_to_n1).qp(n0_to_far);
    node0.counter(3, "carrier_changes", CW_COUNTER_NETDEV, CW_UNIT_EVENTS)
        .counter(4, "completer_retry_err", CW_COUNTER_HW, CW_UNIT_EVENTS);
    node0.samples(10, {{3, 0, 1}, {4, 0, 0}})
        .samples(14, {{3, 0, 1}, {4, 0, 0}})
        .samples(15, {{3, 0, 1}, {4, 0, 5}});
    node0.wire(n0_to_n1, 14, {.requests = 1000, .request_payload = 1'000'000, .first = 12},
               {.acks = 9, .first = 12.1});
    node0.wire(n0_to_n1, 15,
               {.requests = 1001, .request_payload = 1'001'000, .resent = 7, .first = 12},
               {.acks = 9, .first = 12.1});
    node0.wire(n0_to_far, 15, {.requests = 10, .request_payload = 5000, .first = 13},
               {.acks = 3, .first = 13});
    node0.posts({.qpn = 91}, 15, CW_POST_SEND, 4, 1000)
        .loss(CW_LOSS_WIRE_FRAME, 1, 3)
        .loss(CW_LOSS_QP_EVENT, 0, 12);
    auto error = NodeBuilder::qp_event(n0_to_n1, CW_KIND_QP_ERROR, 16);
    error.event = 1;
    node0.add(error).netdev(20, 1'000'000, 900);
    node0.capture().end_block();
    node0.wire(n0_to_n1, 20, {.requests = 5000, .request_payload = 5'000'000}, {});
    std::vector<std::byte> cut_short = node0.bytes();
    cut_short.resize(cut_short.size() - 10);

    NodeBuilder node1({.hostname = "node1",
                       .session_id = 2,
                       .segment = 2,
                       .clock_ahead = 2.5,
                       .flags = CW_NODE_WIRE});
    node1.usual(2).process(200, 5 * NS, "app").qp(n1_to_n0).carrier(17.5, false).carrier(18, true);
    node1.wire(n1_to_n0, 15, {.acks = 9, .first = 12.1},
               {.requests = 1000, .request_payload = 1'000'000, .first = 12});
    return {std::move(cut_short), node1.bytes()};
}

// Two nodes on which only the posts have bytes.
[[nodiscard]] inline Captures posted_only() {
    constexpr std::uint32_t flags = CW_NODE_FIRST_SEGMENT | CW_NODE_POSTS;
    constexpr QpOptions n0_to_n1{.qpn = 17, .local = 1, .remote = 2, .remote_qpn = 18};
    constexpr QpOptions n1_to_n0{.qpn = 18, .local = 2, .remote = 1, .remote_qpn = 17, .pid = 200};
    NodeBuilder node0({.flags = flags});
    node0.device()
        .port()
        .gid(1)
        .source("qp")
        .source("posts")
        .source("rxe_wire", CW_SOURCE_OFF)
        .qp(n0_to_n1);
    node0.posts(n0_to_n1, 19, CW_POST_WRITE, 1000, 65'536).netdev(20, 79'900'000, 12'000).end();
    NodeBuilder node1({.hostname = "node1", .session_id = 2, .flags = flags});
    node1.device()
        .port()
        .gid(2)
        .source("qp")
        .source("posts")
        .source("rxe_wire", CW_SOURCE_OFF)
        .qp(n1_to_n0);
    node1.posts(n1_to_n0, 19, CW_POST_READ, 10, 1'000'000).netdev(20, 12'000, 79'900'000).end();
    return {node0.bytes(), node1.bytes()};
}

// Two ranks of a job with NCCL: gathers in a ring, a group, sends, a graph that is started three
// times, a call of size 0, one launch that is cut short; the second recorder comes late.
[[nodiscard]] inline Captures nccl_job() {
    RingPair ring({.name = "world"});
    for (int i = 0; i < 2; ++i) {
        struct {
            cw_nccl_channel head;
            std::int32_t order[2];
        } channel{.head = make_record<cw_nccl_channel>(CW_KIND_NCCL_CHANNEL, seconds(11.1)),
                  .order = {i, 1 - i}};
        channel.head.header.length_bytes = sizeof channel;
        channel.head.tgid = i == 0 ? 100 : 200;
        channel.head.comm = ring.rank[i].options().comm;
        channel.head.ring_prev = channel.head.ring_next = 1 - i;
        channel.head.tree_up = i == 0 ? -1 : 0;
        std::fill(std::begin(channel.head.tree_down), std::end(channel.head.tree_down), -1);
        channel.head.tree_down[0] = i == 0 ? 1 : -1;
        channel.head.n_order = 2;
        ring.node[i].capture().add_header(channel.head.header);
        for (const auto &[name, value] : {std::pair{"IbQpsPerConn", 1}, {"IbTimeout", 20 + i}}) {
            auto param = make_record<cw_nccl_param>(CW_KIND_NCCL_PARAM, seconds(11.1));
            param.tgid = channel.head.tgid;
            param.image_id = 1;
            param.value = value;
            set_text(param.name, name);
            ring.node[i].add(param);
        }
    }
    ring.all_gather(12, 1000)
        .sample(12.5)
        .all_gather(13, 262'144)
        .all_gather(13.05, 1000)
        .sample(14);
    const CallOptions captured{.count = 500, .buffer = 3};
    const CallOptions send{.func = CW_NCCL_SEND, .count = 100, .root = 1};
    const CallOptions receive{.func = CW_NCCL_RECV, .count = 100, .root = 0};
    for (int i = 0; i < 2; ++i) {
        NcclBuilder &rank = ring.rank[i];
        rank.call(14.1, {.count = 0}).call(14.2, captured);
        rank.shape(14.5, 500, {captured}, ring.ops(i, 2000));
        for (const double time : {14.5, 15.0, 15.5}) {
            rank.launch(time, 500, {captured},
                        {.plan = 0x6000, .flags = CW_NCCL_LAUNCH_GRAPH, .tid = 7});
            ring.sends(i, 2000);
        }
        const CallOptions &p2p = i == 0 ? send : receive;
        rank.call(16, p2p).shape(
            16, 600, {p2p},
            {NcclBuilder::p2p(i == 0 ? SENDS_AT : RECEIVES_AT, i == 0, 1 - i, 400)});
        rank.launch(16.1, 600, {p2p});
        // What is measured of the first two replays, and sampled of what was before and after.
        for (const std::uint64_t connection : {SENDS_AT, RECEIVES_AT}) {
            const bool is_p2p = connection == (i == 0 ? SENDS_AT : RECEIVES_AT);
            rank.steps(12.5, connection, 1)
                .steps(13.06, connection, 2, CW_NCCL_STEPS_BUSY)
                .steps(14, connection, 3)
                .progress(14.51, 14.52 + 0.01 * i, connection, 3)
                .progress(15.01, 15.04, connection, 4)
                .steps(17, connection, is_p2p ? 7 : 6);
        }
    }
    ring.sends(0, 400);
    ring.sample(17).all_gather(18, 4000);
    ring.rank[0].closed_socket(11.1, CW_NCCL_SOCKET_BOOTSTRAP, 1000);
    ring.rank[0].closed_socket(19, CW_NCCL_SOCKET_PROXY, 500);
    for (NcclBuilder &rank : ring.rank)
        rank.closed_socket(19.1, CW_NCCL_SOCKET_NETWORK_SETUP, 300);
    ring.rank[1].closed_socket(19.2, CW_NCCL_SOCKET_BOOTSTRAP, 240);
    // More than was expected, on one side.
    ring.sends(1, 96);
    ring.sample(20);
    return ring.captures();
}

// Two ranks over NET/Socket: a connection each way with a socket for sizes and one for data, and
// one more of node0 whose socket was not recorded. Nothing goes over the queue pairs that the
// kernel made.
[[nodiscard]] inline Captures socket_job() {
    constexpr std::uint32_t FLAGS = NCCL_NODE_FLAGS | CW_NODE_SOCKETS;
    constexpr std::uint64_t UNSEEN_AT = 0x55000;
    NodeBuilder nodes[2] = {NodeBuilder({.flags = FLAGS}),
                            NodeBuilder({.hostname = "node1", .session_id = 2, .flags = FLAGS})};
    for (int i = 0; i < 2; ++i) {
        NodeBuilder &node = nodes[i];
        const auto pid = static_cast<std::uint32_t>(100 + i);
        node.usual(static_cast<std::uint8_t>(i + 1)).datagram_qp({.qpn = 1, .pid = pid});
        NcclBuilder rank(node, {.pid = pid, .rank = i});
        rank.comm();
        for (const bool is_send : {true, false}) {
            auto connection = rank.socket_connection_record(11.2, is_send ? SENDS_AT : RECEIVES_AT,
                                                            is_send, 1 - i, is_send ? 33 : 35);
            cw_nccl_endpoint &data = connection.endpoints[1];
            data.number = connection.endpoints[0].number + 1;
            data.role = CW_NCCL_ROLE_DATA;
            connection.socket_inodes[1] = SOCKET_INODES + data.number;
            connection.n = connection.n_endpoints = 2;
            node.add(connection);
        }
        const CallOptions call{.count = 25'000};
        std::vector<cw_nccl_op> ops = {
            rank.ring({.connection = RECEIVES_AT, .bytes = 100'000, .peer = 1 - i}),
            rank.ring({.connection = SENDS_AT, .bytes = 100'000, .peer = 1 - i})};
        if (i == 0) {
            auto unseen = rank.socket_connection_record(11.3, UNSEEN_AT, true, 1, 37);
            unseen.conn_index = 1;
            node.add(unseen);
            ops.push_back(rank.ring({.connection = UNSEEN_AT, .bytes = 3000}));
        }
        rank.call(12, call).shape(12, 1, {call}, ops).launch(12.1, 1, {call});
        const auto add = [&](std::uint32_t fd, bool is_send, std::uint64_t bytes) {
            // The end that sends on node0 is 4033 there and 5033 on node1, and the other way round.
            const auto port = static_cast<int>(fd);
            const auto local = static_cast<std::uint16_t>(4000 + 1000 * i + port);
            const auto remote =
                static_cast<std::uint16_t>(5000 - 1000 * i + port + (is_send ? 2 : -2));
            auto socket = rank.socket_record(13, fd, is_send ? bytes : 0, local, remote);
            socket.received_bytes = is_send ? 0 : bytes;
            socket.retransmitted_bytes = i == 0 && fd == 34 ? 1448 : 0;
            socket.sent_bytes = socket.acked_bytes + socket.retransmitted_bytes;
            socket.rtt_us = 250 + fd;
            if (i == 1)
                std::swap(socket.local_address, socket.remote_address);
            node.add(socket);
        };
        add(33, true, 13 + 4);
        add(34, true, 100'000);
        add(35, false, 13 + 4);
        add(36, false, 100'000);
        node.netdev(20, 110'000, 109'000).clock(20).end();
    }
    return {nodes[0].bytes(), nodes[1].bytes()};
}

} // namespace collwire::test
