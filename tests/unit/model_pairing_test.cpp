// SPDX-License-Identifier: Apache-2.0
#include "collwire/node_records.h"
#include "collwire/post_records.h"
#include "collwire/qp_records.h"
#include "collwire/record_kinds.h"
#include "tests/support/model_of.h"

namespace collwire::model {
namespace {

using namespace collwire::test;

constexpr QpOptions NODE0{.qpn = 17, .local = 1, .remote = 2, .remote_qpn = 18};
constexpr QpOptions NODE1{.qpn = 18, .local = 2, .remote = 1, .remote_qpn = 17};

QpOptions at(QpOptions options, double created, std::uint32_t sq_psn = 0,
             std::uint32_t rq_psn = 0) {
    options.created = created;
    options.sq_psn = sq_psn;
    options.rq_psn = rq_psn;
    return options;
}

NodeBuilder node1(double clock_ahead = 0) {
    NodeBuilder node({.hostname = "node1", .session_id = 2, .clock_ahead = clock_ahead});
    node.usual(2);
    return node;
}

TEST(ModelPairing, BothEndsFindEachOther) {
    NodeBuilder a;
    a.usual(1).qp(NODE0).end();
    NodeBuilder b = node1();
    b.qp(NODE1).end();
    const Model model = model_of({a.bytes(), b.bytes()});
    EXPECT_EQ(qp_of(model, "node0", 17).pairing, Pairing::Paired);
    EXPECT_EQ(&model.qps[qp_of(model, "node0", 17).peer], &qp_of(model, "node1", 18));
    EXPECT_EQ(&model.qps[qp_of(model, "node1", 18).peer], &qp_of(model, "node0", 17));
}

TEST(ModelPairing, EqualNumbersToAnotherHostAreNotPaired) {
    NodeBuilder a;
    a.usual(1).qp(NODE0).end();
    NodeBuilder b = node1();
    QpOptions elsewhere = NODE1;
    elsewhere.remote = 9;
    b.qp(elsewhere).end();
    const Model model = model_of({a.bytes(), b.bytes()});
    EXPECT_EQ(qp_of(model, "node0", 17).pairing, Pairing::NotCaptured);
    EXPECT_EQ(qp_of(model, "node0", 17).remote_host, "node1") << "its host is here, its end is not";
    EXPECT_EQ(qp_of(model, "node1", 18).pairing, Pairing::NotCaptured);
    EXPECT_TRUE(has_warning(
        model, "1 queue pair(s): the other end was not found in the capture of its host (node1)"));
    EXPECT_TRUE(
        has_warning(model, "1 queue pair(s): the other end is not in these captures (10.0.0.9)"));
}

TEST(ModelPairing, HostNamedByTheTopologyIsInTheCaptures) {
    NodeBuilder a;
    a.usual(1).qp(NODE0).end();
    NodeBuilder without_address({.hostname = "node1", .session_id = 2});
    without_address.device().port().source("qp").end();
    const Model model = model_of({a.bytes(), without_address.bytes()});
    EXPECT_TRUE(has_warning(model, "not found in the capture of its host (node1)"));
    EXPECT_FALSE(has_warning(model, "not in these captures"));
}

TEST(ModelPairing, ReusedNumbersPairByTimeDespiteClocksSecondsApart) {
    NodeBuilder a;
    NodeBuilder b = node1(3.5);
    a.usual(1);
    for (int i = 0; i < 3; ++i) {
        const QpOptions mine = at(NODE0, 11 + 2 * i);
        const QpOptions theirs = at(NODE1, 11.01 + 2 * i);
        a.qp(mine).destroy(mine, 12.5 + 2 * i);
        b.qp(theirs).destroy(theirs, 12.51 + 2 * i);
    }
    // One connection whose numbers no other has shows how far the clocks are apart.
    a.qp({.qpn = 40, .local = 1, .remote = 2, .remote_qpn = 41});
    b.qp({.qpn = 41, .local = 2, .remote = 1, .remote_qpn = 40});
    const Model model = model_of({a.end().bytes(), b.end().bytes()});
    ASSERT_EQ(model.clock_differences.size(), 1U);
    EXPECT_NEAR(static_cast<double>(model.clock_differences[0].b_minus_a_ns), 3.5e9, 1e6);
    EXPECT_TRUE(has_warning(model, "clocks"));
    std::size_t paired = 0;
    for (const Qp &qp : model.qps)
        if (qp.key.qpn == 17) {
            ASSERT_EQ(qp.pairing, Pairing::Paired);
            const std::uint64_t theirs = model.qps[qp.peer].key.generation_ns;
            EXPECT_EQ(theirs, qp.key.generation_ns + seconds(0.01));
            ++paired;
        }
    EXPECT_EQ(paired, 3U);
}

TEST(ModelPairing, WithoutClocksSeveralCandidatesAreAmbiguous) {
    NodeBuilder a;
    NodeBuilder b = node1(3.5);
    a.usual(1);
    for (int i = 0; i < 2; ++i) {
        a.qp(at(NODE0, 11 + 2 * i)).destroy(at(NODE0, 11 + 2 * i), 12.5 + 2 * i);
        b.qp(at(NODE1, 11 + 2 * i)).destroy(at(NODE1, 11 + 2 * i), 12.5 + 2 * i);
    }
    const Model model = model_of({a.end().bytes(), b.end().bytes()});
    for (const Qp &qp : model.qps)
        EXPECT_EQ(qp.pairing, Pairing::Ambiguous);
    EXPECT_TRUE(has_warning(model, "several could be the other end"));
}

TEST(ModelPairing, SequenceNumbersSeparateReusedNumbers) {
    NodeBuilder a;
    NodeBuilder b = node1(3.5);
    a.usual(1);
    for (std::uint32_t i = 1; i < 3; ++i) {
        const QpOptions mine = at(NODE0, 9 + 2 * i, 1000 * i, 70 * i);
        const QpOptions theirs = at(NODE1, 9 + 2 * i, 70 * i, 1000 * i);
        a.qp(mine).destroy(mine, 10.5 + 2 * i);
        b.qp(theirs).destroy(theirs, 10.5 + 2 * i);
    }
    const Model model = model_of({a.end().bytes(), b.end().bytes()});
    for (const Qp &qp : model.qps) {
        ASSERT_EQ(qp.pairing, Pairing::Paired);
        EXPECT_EQ(model.qps[qp.peer].address.rq_psn, qp.address.sq_psn);
    }
}

TEST(ModelPairing, DisjointLifetimesAreNotPaired) {
    NodeBuilder a;
    a.usual(1).qp(NODE0).destroy(NODE0, 12).end();
    NodeBuilder b({.hostname = "node1", .session_id = 2, .start = 500});
    b.usual(2).qp(at(NODE1, 501)).end(510);
    const Model model = model_of({a.bytes(), b.bytes()});
    EXPECT_EQ(qp_of(model, "node0", 17).pairing, Pairing::NotCaptured);
}

TEST(ModelPairing, AddressMissingInNetlinkComesFromThePeer) {
    NodeBuilder a;
    a.usual(1);
    auto existing = NodeBuilder::qp_event(NODE0, CW_KIND_QP_EXISTING, 10.5);
    existing.flags = CW_QP_FROM_NETLINK | CW_QP_PREEXISTING | CW_QP_DEST;
    existing.dest_qpn = 18;
    existing.new_state = 3;
    a.add(existing).end();
    NodeBuilder b = node1();
    b.qp(NODE1).end();
    const Model model = model_of({a.bytes(), b.bytes()});
    const Qp &qp = qp_of(model, "node0", 17);
    EXPECT_EQ(qp.pairing, Pairing::Paired);
    EXPECT_EQ(qp.remote_host, "node1");
    EXPECT_EQ(qp.tier, topology::Tier::Leaf);
}

TEST(ModelPairing, InfinibandByLid) {
    const auto node = [](std::string hostname, std::uint64_t session, std::uint32_t lid,
                         std::uint32_t qpn, std::uint32_t remote_lid, std::uint32_t remote_qpn) {
        NodeBuilder built({.hostname = std::move(hostname), .session_id = session});
        built.device(0, "mlx5_0", 0);
        auto port = built.port_record(10);
        port.link_layer = CW_LINK_INFINIBAND;
        port.lid = lid;
        port.subnet_prefix = 0xfe80000000000000;
        const QpOptions options{.qpn = qpn, .remote_qpn = remote_qpn};
        auto event = NodeBuilder::connect_event(options, CW_KIND_QP_STATE, 12);
        event.flags = CW_QP_ADDRESS | CW_QP_DEST;
        std::memset(event.dgid, 0, sizeof(event.dgid));
        event.dlid = remote_lid;
        built.add(port).create(options).add(event).end();
        return built.bytes();
    };
    const Model model = model_of({node("node0", 1, 5, 17, 6, 18), node("node1", 2, 6, 18, 5, 17)});
    EXPECT_EQ(qp_of(model, "node0", 17).pairing, Pairing::Paired);
    EXPECT_EQ(qp_of(model, "node1", 18).remote_host, "node0");
}

TEST(ModelPairing, StartTimesSeparateOwners) {
    NodeBuilder a;
    a.usual(1).process(100, 5 * NS, "first").process(100, 12 * NS, "second");
    QpOptions early = NODE0;
    early.pid_start_ns = 5 * NS + 4'000'000; // the other clock has ticks of 10 ms
    QpOptions late = NODE0;
    late.qpn = 30;
    late.created = 13;
    late.pid_start_ns = 12 * NS;
    QpOptions stranger = NODE0;
    stranger.qpn = 31;
    stranger.pid_start_ns = 9 * NS;
    a.qp(early).qp(late).qp(stranger).end();
    const Model model = model_of({a.bytes()});
    EXPECT_EQ(model.processes[qp_of(model, "node0", 17).process].argv0, "first");
    EXPECT_EQ(model.processes[qp_of(model, "node0", 30).process].argv0, "second");
    const Process &unknown = model.processes[qp_of(model, "node0", 31).process];
    EXPECT_FALSE(unknown.described);
    EXPECT_EQ(unknown.comm, "app");
    EXPECT_EQ(model.process_sums.size(), 3U);
}

TEST(ModelPairing, ContradictingSequenceNumbersAreNeverPaired) {
    NodeBuilder a;
    const QpOptions mine = at(NODE0, 11, 1000, 2000);
    a.usual(1).qp(mine).destroy(mine, 13).end();
    NodeBuilder b = node1();
    b.qp(at(NODE1, 16, 777, 888)).end(30);
    const Model model = model_of({a.bytes(), b.bytes()});
    EXPECT_EQ(qp_of(model, "node0", 17).pairing, Pairing::NotCaptured);
    EXPECT_EQ(qp_of(model, "node1", 18).pairing, Pairing::NotCaptured);
    EXPECT_TRUE(model.clock_differences.empty());
    // What goes beyond 24 bits is not on the wire.
    NodeBuilder c = node1();
    c.qp(at(NODE1, 11, 2000, 0x1000000 + 1000)).end();
    EXPECT_EQ(qp_of(model_of({a.bytes(), c.bytes()}), "node0", 17).pairing, Pairing::Paired);
}

// `generations` connections of the same numbers, 10 ms each.
std::pair<NodeBuilder, NodeBuilder> reused_at_a_rate(std::uint32_t generations, bool with_psns) {
    NodeBuilder a;
    NodeBuilder b = node1();
    // One connection whose numbers no other has shows the clocks.
    a.usual(1).qp({.qpn = 40, .local = 1, .remote = 2, .remote_qpn = 41});
    b.qp({.qpn = 41, .local = 2, .remote = 1, .remote_qpn = 40});
    for (std::uint32_t i = 0; i < generations; ++i) {
        const double created = 11 + 0.01 * i;
        const std::uint32_t there = with_psns ? 1000 + i : 0;
        const std::uint32_t back = with_psns ? 70'000 + i : 0;
        QpOptions mine = at(NODE0, created, there, back);
        QpOptions theirs = at(NODE1, created, back, there);
        mine.connected_after = theirs.connected_after = 0.001;
        a.qp(mine).destroy(mine, created + 0.009);
        b.qp(theirs).destroy(theirs, created + 0.009);
    }
    a.end();
    b.end();
    return {std::move(a), std::move(b)};
}

TEST(ModelPairing, NumbersReusedAtARatePairBySequenceNumbers) {
    auto [a, b] = reused_at_a_rate(200, true);
    const Model model = model_of({a.bytes(), b.bytes()});
    ASSERT_EQ(model.qps.size(), 402U);
    for (const Qp &qp : model.qps) {
        ASSERT_EQ(qp.pairing, Pairing::Paired) << qp.key.qpn << " of " << qp.key.generation_ns;
        ASSERT_EQ(model.qps[qp.peer].address.rq_psn, qp.address.sq_psn);
    }
}

TEST(ModelPairing, NumbersReusedAtARateWithoutSequenceNumbersAreAmbiguous) {
    auto [a, b] = reused_at_a_rate(200, false);
    const Model model = model_of({a.bytes(), b.bytes()});
    std::size_t ambiguous = 0;
    for (const Qp &qp : model.qps) {
        EXPECT_NE(qp.pairing, Pairing::NotCaptured);
        ambiguous += qp.pairing == Pairing::Ambiguous ? 1U : 0U;
    }
    EXPECT_EQ(ambiguous, 400U);
}

TEST(ModelPairing, LongHistoryOfOneNumberDoesNotHideTheRightOne) {
    NodeBuilder a;
    NodeBuilder b = node1();
    a.usual(1).qp({.qpn = 40, .local = 1, .remote = 2, .remote_qpn = 41});
    b.qp({.qpn = 41, .local = 2, .remote = 1, .remote_qpn = 40});
    for (int i = 0; i < 400; ++i) {
        a.qp(at(NODE0, 11 + 5 * i)).destroy(at(NODE0, 11 + 5 * i), 15 + 5 * i);
        b.qp(at(NODE1, 11 + 5 * i)).destroy(at(NODE1, 11 + 5 * i), 15 + 5 * i);
    }
    const Model model = model_of({a.end(3000).bytes(), b.end(3000).bytes()});
    for (const Qp &qp : model.qps) {
        ASSERT_EQ(qp.pairing, Pairing::Paired);
        EXPECT_EQ(model.qps[qp.peer].key.generation_ns, qp.key.generation_ns);
    }
}

// A recording of node0 in which the queue pair was there from before.
NodeBuilder restarted(std::uint64_t session, double start, std::uint32_t flags) {
    NodeBuilder node({.session_id = session, .start = start, .flags = flags});
    node.usual(1).source("posts");
    auto existing =
        NodeBuilder::connect_event(at(NODE0, start + 0.1), CW_KIND_QP_EXISTING, start + 0.1);
    existing.flags |= CW_QP_PREEXISTING;
    node.add(existing);
    return node;
}

TEST(ModelPairing, RestartedRecorderFindsTheSameQueuePair) {
    constexpr std::uint32_t flags = CW_NODE_FIRST_SEGMENT | CW_NODE_WIRE;
    NodeBuilder first = restarted(1, 10, flags);
    NodeBuilder second = restarted(7, 22, flags);
    NodeBuilder b = node1();
    b.qp(at(NODE1, 11, 777, 888)).end(40);
    const Model model = model_of({first.end(20).bytes(), second.end(32).bytes(), b.bytes()});
    ASSERT_EQ(model.qps.size(), 3U);
    for (const Qp &qp : model.qps)
        EXPECT_EQ(qp.pairing, Pairing::Paired);
    EXPECT_EQ(model.qps[0].peer, 2U);
    EXPECT_EQ(model.qps[1].peer, 2U);
    EXPECT_EQ(model.qps[2].peer, 1U) << "it was longer in the second recording";
}

TEST(ModelPairing, RecordingsOfBothEndsMeetInOrder) {
    constexpr std::uint32_t flags = CW_NODE_FIRST_SEGMENT | CW_NODE_WIRE;
    std::vector<std::vector<std::byte>> captures;
    for (const double start : {10, 22}) {
        NodeBuilder a = restarted(start < 20 ? 1 : 2, start, flags);
        NodeBuilder b({.hostname = "node1",
                       .session_id = start < 20 ? 3U : 4U,
                       .start = start,
                       .clock_ahead = 1.5});
        auto existing =
            NodeBuilder::connect_event(at(NODE1, start + 0.1), CW_KIND_QP_EXISTING, start + 0.1);
        existing.flags |= CW_QP_PREEXISTING;
        captures.push_back(a.end(start + 10).bytes());
        captures.push_back(b.usual(2).add(existing).end(start + 10).bytes());
    }
    const Model model = model_of(captures);
    ASSERT_EQ(model.qps.size(), 4U);
    for (const auto &[of, peer] : {std::pair{0U, 2U}, {1U, 3U}, {2U, 0U}, {3U, 1U}})
        EXPECT_EQ(model.qps[of].peer, peer);
}

TEST(ModelPairing, PostsOfOneEndInTwoRecordingsAreNotTheRxOfEach) {
    constexpr std::uint32_t flags = CW_NODE_FIRST_SEGMENT | CW_NODE_POSTS;
    NodeBuilder first = restarted(1, 10, flags);
    first.posts(at(NODE0, 10.1), 15, CW_POST_WRITE, 1, 1000);
    NodeBuilder second = restarted(7, 22, flags);
    second.posts(at(NODE0, 22.1), 27, CW_POST_WRITE, 1, 2000);
    NodeBuilder b({.hostname = "node1", .session_id = 2, .flags = flags});
    b.usual(2).source("posts").qp(NODE1).posts(NODE1, 30, CW_POST_WRITE, 1, 40'000).end(40);
    const Model model = model_of({first.end(20).bytes(), second.end(32).bytes(), b.bytes()});
    ASSERT_EQ(model.qps.size(), 3U);
    for (const Qp &qp : model.qps) {
        EXPECT_EQ(qp.pairing, Pairing::Paired);
        EXPECT_EQ(qp.bytes.rung, BytesRung::Posted);
        EXPECT_FALSE(qp.bytes.rx_payload_bytes);
    }
    EXPECT_EQ(model.total.tx_payload_bytes, 43'000U);
}

TEST(ModelPairing, NumbersReusedAfterARebootBelongToTheOtherBoot) {
    for (const bool with_psns : {true, false}) {
        const auto psn = [&](std::uint32_t value) { return with_psns ? value : 0; };
        NodeBuilder a;
        a.usual(1);
        std::vector<std::vector<std::byte>> captures;
        for (const std::uint32_t boot : {1U, 2U}) {
            const double shift = boot == 1 ? 0 : 500;
            const QpOptions mine = at(NODE0, 11 + shift, psn(100 + boot), psn(200 + boot));
            a.qp(mine).destroy(mine, 15 + shift);
            NodeBuilder b({.hostname = "node1",
                           .boot_id = "boot-" + std::to_string(boot),
                           .session_id = 10 + boot,
                           .clock_ahead = shift});
            const QpOptions theirs = at(NODE1, 11, psn(200 + boot), psn(100 + boot));
            captures.push_back(b.usual(2).qp(theirs).destroy(theirs, 15).end().bytes());
        }
        const QpOptions datagrams{.qpn = 30, .created = 512};
        a.datagram_qp(datagrams).ud_peer(datagrams, 514, 2, 21, 1, 100, 50);
        captures.push_back(a.end(600).bytes());
        const Model model = model_of(captures);
        for (const Qp &qp : model.qps)
            if (qp.is_connected_type()) {
                EXPECT_EQ(qp.pairing, Pairing::Paired);
            }
        const UdPeer &to = qp_of(model, "node0", 30).ud_peers.at(0);
        ASSERT_NE(to.remote_port, NONE) << "only one of the boots was up then";
        EXPECT_EQ(model.hosts[model.devices[model.ports[to.remote_port].device].host].boot_id,
                  "boot-2");
    }
}

TEST(ModelPairing, ReconnectedQueuePairHasNoPeer) {
    QpOptions other = NODE0;
    other.remote = 3;
    other.remote_qpn = 19;
    const Frames early{.requests = 1000, .first = 12};
    for (const double again : {11.5, 14.0}) {
        NodeBuilder a;
        a.usual(1).qp(NODE0);
        if (again > 12)
            a.wire(NODE0, 13, early, {});
        a.add(NodeBuilder::connect_event(other, CW_KIND_QP_STATE, again));
        a.wire(NODE0, 15, {.requests = 1001, .first = 12}, {}).end();
        const Model model = model_of({a.bytes()});
        const Qp &qp = qp_of(model, "node0", 17);
        EXPECT_EQ(model.total.tx_wire_bytes, 1001 * 58U);
        if (again > 12) {
            EXPECT_EQ(qp.tier, topology::Tier::Unknown);
            EXPECT_EQ(qp.pairing, Pairing::Ambiguous);
            EXPECT_EQ(qp.remote_host, "");
            EXPECT_TRUE(has_warning(model, "connected to another peer"));
        } else {
            EXPECT_EQ(qp.tier, topology::Tier::Spine) << "nothing was sent before";
            EXPECT_EQ(qp.remote_host, "node2");
        }
    }
}

} // namespace
} // namespace collwire::model
