// SPDX-License-Identifier: Apache-2.0
// Segments, copies and several recordings of a host: what counts, and what counts once.
#include "collwire/loss_records.h"
#include "collwire/node_records.h"
#include "collwire/post_records.h"
#include "collwire/record_kinds.h"
#include "tests/support/model_of.h"

namespace collwire::model {
namespace {

using namespace collwire::test;
using topology::Tier;

TEST(ModelRecordings, BytesBeforeTheFirstPresentSegmentAreNotCounted) {
    const QpOptions old{.qpn = 17, .created = 2};
    const QpOptions fresh{.qpn = 21, .created = 14, .remote_qpn = 22};
    NodeBuilder node({.segment = 3, .start = 12, .flags = CW_NODE_WIRE | CW_NODE_POSTS});
    node.usual(1).source("posts");
    node.add(NodeBuilder::connect_event(old, CW_KIND_QP_EXISTING, 12));
    node.wire(old, 12.1, {.requests = 100, .request_payload = 100000, .first = 3}, {});
    node.posts(old, 12.1, CW_POST_SEND, 100, 1000);
    node.qp(fresh);
    node.wire(fresh, 15, {.requests = 1, .request_payload = 1000, .first = 14.5}, {});
    node.wire(old, 16, {.requests = 130, .request_payload = 130000, .first = 3},
              {.acks = 4, .first = 13});
    node.posts(old, 16, CW_POST_SEND, 130, 1000, "");
    const Model model = model_of({node.end().bytes()});
    const Qp &since = qp_of(model, "node0", 17);
    EXPECT_EQ(since.bytes.tx_payload_bytes, 30000U);
    EXPECT_EQ(since.bytes.rx_wire_bytes, 4 * 62U) << "this direction began in the segment";
    EXPECT_EQ(since.posted_tx_payload_bytes, 30000U);
    EXPECT_EQ(qp_of(model, "node0", 21).bytes.tx_payload_bytes, 1000U);
    EXPECT_TRUE(has_warning(model, "first segment is missing"));
}

TEST(ModelRecordings, SegmentsInAnyNumberGiveTheLastCounts) {
    const QpOptions qp{.qpn = 17};
    NodeBuilder first;
    first.usual(1)
        .qp(qp)
        .wire(qp, 12, {.requests = 10, .request_payload = 1000, .first = 11}, {})
        .end(12.5, 2);
    NodeBuilder second({.segment = 1, .start = 12.5, .flags = CW_NODE_WIRE});
    second.usual(1).add(NodeBuilder::connect_event(qp, CW_KIND_QP_EXISTING, 12.5));
    second.wire(qp, 12.6, {.requests = 10, .request_payload = 1000, .first = 11}, {});
    second.wire(qp, 15, {.requests = 40, .request_payload = 4000, .first = 11}, {}).end();
    for (const auto &order :
         {std::vector{first.bytes(), second.bytes()}, std::vector{second.bytes(), first.bytes()},
          std::vector{first.bytes(), second.bytes(), first.bytes()}}) {
        const Model model = model_of(order);
        ASSERT_EQ(model.qps.size(), 1U);
        EXPECT_EQ(model.qps[0].bytes.tx_payload_bytes, 4000U);
        EXPECT_EQ(model.sessions.size(), 1U);
        EXPECT_TRUE(model.sessions[0].from_start);
    }
    NodeBuilder fourth({.segment = 3, .start = 16, .flags = CW_NODE_WIRE});
    fourth.usual(1).end();
    EXPECT_TRUE(
        has_warning(model_of({first.bytes(), fourth.bytes()}), "2 segment(s) in the middle"));
}

TEST(ModelRecordings, OverlappingRecordingsOfOneHostCountOnce) {
    const QpOptions qp{.qpn = 17};
    const auto recording = [&](std::uint64_t session, double start, double end) {
        NodeBuilder node({.session_id = session, .start = start});
        node.usual(1)
            .qp(qp)
            .wire(qp, 14, {.requests = 10, .request_payload = 1000, .first = 12}, {})
            .carrier(13, false);
        return node.end(end).bytes();
    };
    const Model model = model_of({recording(1, 10, 15), recording(2, 10.5, 20)});
    EXPECT_EQ(model.total.tx_payload_bytes, 1000U);
    EXPECT_TRUE(model.sessions[0].excluded) << "the shorter one";
    EXPECT_FALSE(model.sessions[1].excluded);
    EXPECT_EQ(model.events.size(), 1U);
    EXPECT_TRUE(has_warning(model, "overlap"));
    // One after the other: both count.
    EXPECT_EQ(model_of({recording(1, 10, 15), recording(2, 15, 20)}).total.tx_payload_bytes, 2000U);
}

TEST(ModelRecordings, RecordingThatWasKilledAfterARotationHasNoEnd) {
    NodeBuilder first;
    first.usual(1).end(12, 2);
    NodeBuilder second({.segment = 1, .start = 12, .flags = CW_NODE_WIRE});
    second.usual(1);
    EXPECT_FALSE(model_of({first.bytes(), second.bytes()}).sessions.at(0).ended);
    second.end(20);
    EXPECT_TRUE(model_of({first.bytes(), second.bytes()}).sessions.at(0).ended);
}

TEST(ModelRecordings, CopyOfAFileChangesNothing) {
    NodeBuilder node;
    auto probe = make_record<cw_probe>(CW_KIND_PROBE, seconds(10));
    probe.flags = CW_PROBE_PLACED;
    node.usual(1).add(probe).add(probe).end();
    EXPECT_EQ(model_of({node.bytes()}).sessions.at(0).probes_placed, 2U);
    EXPECT_EQ(model_of({node.bytes(), node.bytes()}).sessions.at(0).probes_placed, 2U);
}

TEST(ModelRecordings, LossOfAnExcludedRecordingIsExcluded) {
    const auto recording = [](std::uint64_t session, double end, std::uint64_t lost) {
        NodeBuilder node({.session_id = session});
        node.usual(1).loss(CW_LOSS_WIRE_TABLE, 0, lost, 11);
        return node.end(end).bytes();
    };
    const Model model = model_of({recording(1, 15, 9), recording(2, 20, 0)});
    ASSERT_TRUE(model.sessions.at(0).excluded);
    EXPECT_EQ(model.lost_records, 0U);
    EXPECT_TRUE(model.loss.empty());
}

TEST(ModelRecordings, OneMachineUnderTwoNamesIsOneHost) {
    const QpOptions qp{.qpn = 17};
    const auto recording = [&](std::string hostname, std::uint64_t session, double end,
                               std::string_view machine) {
        NodeBuilder node({.hostname = std::move(hostname),
                          .boot_id = "one-boot",
                          .session_id = session,
                          .machine_id = std::string(machine)});
        node.usual(1).qp(qp).wire(qp, 14, {.requests = 10, .first = 12}, {});
        return node.end(end).bytes();
    };
    const Model model = model_of({recording("node0", 1, 20, "m"), recording("pod-abc", 2, 18, "")});
    ASSERT_EQ(model.hosts.size(), 1U);
    EXPECT_EQ(model.hosts[0].name, "node0") << "the first";
    EXPECT_EQ(model.total.tx_wire_bytes, 580U);
    EXPECT_TRUE(has_warning(model, "overlap"));
    const Model copies =
        model_of({recording("node0", 1, 20, "m"), recording("node1", 2, 20, "another")});
    EXPECT_EQ(copies.hosts.size(), 2U) << "a copy of a virtual machine";
    EXPECT_EQ(copies.total.tx_wire_bytes, 1160U);
}

TEST(ModelRecordings, TwoMachinesWithOneNameAreTwoHosts) {
    constexpr std::string_view one_host = R"({"collwire_topology": 1,
        "switches": [{"id": "l", "tier": "leaf"}],
        "ports": [{"host": "localhost", "switch": "l"}]})";
    constexpr std::string_view by_address = R"({"collwire_topology": 1,
        "switches": [{"id": "l", "tier": "leaf"}],
        "ports": [{"host": "localhost", "ip": "10.0.0.1", "switch": "l"},
                  {"host": "localhost", "ip": "10.0.0.2", "switch": "l"}]})";
    const auto machine = [](std::uint8_t own, std::uint8_t other, double clock_ahead,
                            std::string machine_id) {
        const QpOptions qp{
            .qpn = 16U + own, .local = own, .remote = other, .remote_qpn = 16U + other};
        NodeBuilder node({.hostname = "localhost",
                          .boot_id = "boot-" + std::to_string(own),
                          .session_id = own,
                          .clock_ahead = clock_ahead,
                          .machine_id = std::move(machine_id)});
        return node.usual(own).qp(qp).wire(qp, 15, {.requests = 10}, {}).end().bytes();
    };
    for (const std::string_view topology : {one_host, by_address}) {
        const Model model = model_of({machine(1, 2, 0, ""), machine(2, 1, 0, "")}, topology);
        for (const Qp &qp : model.qps)
            EXPECT_EQ(qp.tier, topology == by_address ? Tier::Leaf : Tier::Unknown);
    }
    // One after the other: two boots of one machine, unless the machines say otherwise.
    EXPECT_EQ(
        model_of({machine(1, 2, 0, ""), machine(2, 1, 900, "")}, one_host).ports.at(0).switch_id,
        "l");
    EXPECT_EQ(
        model_of({machine(1, 2, 0, "a"), machine(2, 1, 900, "b")}, one_host).ports.at(0).switch_id,
        "");
}

TEST(ModelRecordings, ExcludedRecordingExcludesNoOther) {
    const auto recording = [](std::uint64_t session, double start, double end) {
        NodeBuilder node({.session_id = session, .start = start});
        return node.usual(1).end(end).bytes();
    };
    const Model model =
        model_of({recording(1, 10, 20), recording(2, 15, 30), recording(3, 28, 50)});
    EXPECT_FALSE(model.sessions.at(0).excluded);
    EXPECT_TRUE(model.sessions.at(1).excluded);
    EXPECT_FALSE(model.sessions.at(2).excluded);
}

TEST(ModelRecordings, DatagramsOfANewDestinationAtTheStartOfASegmentCount) {
    const QpOptions old{.qpn = 17, .created = 2};
    const QpOptions fresh{.qpn = 18, .created = 12.1};
    NodeBuilder second({.segment = 1, .start = 12, .flags = CW_NODE_WIRE});
    second.usual(1).ud_peer(old, 12.1, 2, 18, 10, 580, 0);
    second.datagram_qp(fresh).ud_peer(fresh, 12.3, 2, 18, 10, 700, 0).end(14, 2);
    NodeBuilder third({.segment = 2, .start = 14, .flags = CW_NODE_WIRE});
    third.usual(1).ud_peer(old, 14.1, 2, 18, 10, 580, 0).ud_peer(old, 14.1, 3, 18, 1, 58, 0);
    const Model model = model_of({second.bytes(), third.end().bytes()});
    const auto &peers = qp_of(model, "node0", 17).ud_peers;
    ASSERT_EQ(peers.size(), 2U);
    EXPECT_EQ(peers[0].tx_wire_bytes, 0U) << "from before the first segment that is here";
    EXPECT_EQ(peers[1].tx_wire_bytes, 58U) << "was not in the segment before";
    EXPECT_EQ(qp_of(model, "node0", 18).ud_peers.at(0).tx_wire_bytes, 700U);
}

} // namespace
} // namespace collwire::model
