// SPDX-License-Identifier: Apache-2.0
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

TEST(ModelPairing, SameNumbersToAnotherHostAreNoPair) {
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
    // One connection whose numbers nobody else has tells how far the clocks are apart.
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

TEST(ModelPairing, SequenceNumbersTellReusedNumbersApart) {
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

TEST(ModelPairing, LivesThatNeverMetAreNoPair) {
    NodeBuilder a;
    a.usual(1).qp(NODE0).destroy(NODE0, 12).end();
    NodeBuilder b({.hostname = "node1", .session_id = 2, .start = 500});
    b.usual(2).qp(at(NODE1, 501)).end(510);
    const Model model = model_of({a.bytes(), b.bytes()});
    EXPECT_EQ(qp_of(model, "node0", 17).pairing, Pairing::NotCaptured);
}

TEST(ModelPairing, AddressThatNetlinkDoesNotTellComesFromThePeer) {
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

TEST(ModelPairing, OwnersAreToldApartByTheirStart) {
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

} // namespace
} // namespace collwire::model
