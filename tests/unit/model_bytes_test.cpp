// SPDX-License-Identifier: Apache-2.0
#include "collwire/loss_records.h"
#include "collwire/node_records.h"
#include "collwire/post_records.h"
#include "collwire/qp_records.h"
#include "collwire/record_kinds.h"
#include "tests/support/model_of.h"

namespace collwire::model {
namespace {

using namespace collwire::test;
using topology::Tier;

// node0 writes 10 frames of 1024 B to node1, which acknowledges; one frame went twice.
NodeBuilder sender(std::uint8_t to = 2) {
    NodeBuilder node;
    const QpOptions qp{.qpn = 17, .local = 1, .remote = to, .remote_qpn = 18};
    node.usual(1).process(100, 5 * NS, "ib_write_bw").qp(qp);
    node.wire(qp, 15, {.requests = 10, .request_payload = 10240, .resent = 1, .first = 12},
              {.acks = 2, .first = 12.1});
    node.netdev(20, 10 * FRAME_HEADERS + 10240 + RESENT_FRAME + 500, 2 * ACK_FRAME);
    return std::move(node.end());
}
NodeBuilder receiver(std::string hostname = "node1", std::uint8_t own = 2) {
    NodeBuilder node({.hostname = std::move(hostname), .session_id = 2});
    const QpOptions qp{.qpn = 18, .local = own, .remote = 1, .remote_qpn = 17, .pid = 200};
    node.usual(own).process(200, 5 * NS, "ib_write_bw").qp(qp);
    node.wire(qp, 15, {.acks = 2, .first = 12.1},
              {.requests = 10, .request_payload = 10240, .resent = 1, .first = 12});
    node.netdev(20, 2 * ACK_FRAME, 10 * FRAME_HEADERS + 10240 + RESENT_FRAME);
    return std::move(node.end());
}

TEST(ModelBytes, FramesCountForTheSendingQueuePair) {
    const Model model = model_of({sender().bytes(), receiver().bytes()});
    ASSERT_EQ(model.qps.size(), 2U);
    const Qp &from = qp_of(model, "node0", 17);
    EXPECT_EQ(from.bytes.rung, BytesRung::Wire);
    EXPECT_EQ(from.bytes.tx_payload_bytes, 10240U);
    EXPECT_EQ(from.bytes.rx_payload_bytes, 0U);
    EXPECT_EQ(from.bytes.tx_wire_bytes, 10 * 58 + 10240 + 1082U);
    EXPECT_EQ(from.bytes.rx_wire_bytes, 2 * 62U);
    EXPECT_EQ(from.bytes.retransmitted_wire_bytes, 1082U);
    const Qp &to = qp_of(model, "node1", 18);
    EXPECT_EQ(to.bytes.rx_payload_bytes, 10240U) << "a frame that came again is no payload";
    EXPECT_EQ(to.bytes.tx_wire_bytes, 124U);
    EXPECT_EQ(to.bytes.tx_ack_wire_bytes, 124U);
}

TEST(ModelBytes, TierIsTheHighestLevelCrossed) {
    const Model leaf = model_of({sender().bytes(), receiver().bytes()});
    EXPECT_EQ(qp_of(leaf, "node0", 17).tier, Tier::Leaf);
    EXPECT_EQ(leaf.tiers[index_of(Tier::Leaf)].tx_wire_bytes, 10 * 58 + 10240 + 1082 + 124U);
    EXPECT_EQ(leaf.tiers[index_of(Tier::Leaf)].tx_payload_bytes, 10240U);
    EXPECT_EQ(leaf.tiers[index_of(Tier::Spine)].qps, 0U);

    const Model spine = model_of({sender(3).bytes(), receiver("node2", 3).bytes()});
    EXPECT_EQ(qp_of(spine, "node0", 17).tier, Tier::Spine);
    EXPECT_EQ(spine.tiers[index_of(Tier::Spine)].tx_payload_bytes, 10240U);

    const Model none = model_of({sender().bytes(), receiver().bytes()}, "");
    EXPECT_EQ(qp_of(none, "node0", 17).tier, Tier::Unknown);
    EXPECT_TRUE(has_warning(none, "no topology"));
}

TEST(ModelBytes, PeerWithoutACaptureHasATier) {
    const Model model = model_of({sender(3).bytes()});
    const Qp &qp = qp_of(model, "node0", 17);
    EXPECT_EQ(qp.pairing, Pairing::NotCaptured);
    EXPECT_EQ(qp.tier, Tier::Spine);
    EXPECT_EQ(qp.remote_host, "node2");
    EXPECT_TRUE(has_warning(model, "the other end is not in these captures"));
    EXPECT_EQ(model.tiers[index_of(Tier::Spine)].rx_wire_bytes_from_uncaptured, 124U);
}

// 580 B of a queue pair that was made before records were lost, 1160 B of one without any event.
NodeBuilder with_lost_addresses() {
    NodeBuilder node;
    node.usual(1).create({.qpn = 17}).create({.qpn = 19});
    node.wire({.qpn = 17}, 15, {.requests = 10}, {}).wire({.qpn = 18}, 15, {.requests = 20}, {});
    return node;
}

TEST(ModelBytes, BytesToALostAddressAreInTheNodePairs) {
    const Model model = model_of({with_lost_addresses().bytes()});
    EXPECT_EQ(model.total.tx_wire_bytes, 1740U);
    ASSERT_EQ(model.node_pairs.size(), 1U);
    EXPECT_EQ(model.node_pairs[0].source, "node0");
    EXPECT_EQ(model.node_pairs[0].destination, "(destination not known)");
    EXPECT_EQ(model.node_pairs[0].all.tx_wire_bytes, 1740U);
    EXPECT_EQ(model.node_pairs[0].all.qps, 2U) << "one was never connected and sent nothing";
}

TEST(ModelBytes, WarningSeparatesTopologyGapsFromUnknownDestinations) {
    const Model lost = model_of({with_lost_addresses().bytes()});
    EXPECT_TRUE(has_warning(lost, "lower bounds: the destination of 1740 B is not known"));
    EXPECT_FALSE(has_warning(lost, "Fix: add them to the topology"));

    const QpOptions far{.qpn = 20, .remote = 9};
    const QpOptions datagrams{.qpn = 30};
    NodeBuilder node;
    node.usual(1).qp(far).wire(far, 15, {.requests = 100}, {}).datagram_qp(datagrams);
    node.wire(datagrams, 15, {.requests = 3}, {}).ud_peer(datagrams, 15, 9, 40, 2, 116, 0);
    const Model lacking = model_of({node.bytes()});
    EXPECT_TRUE(has_warning(lacking, "5974 B have tier \"unknown\""));
    EXPECT_TRUE(has_warning(lacking, "the destination of 58 B is not known"));
    EXPECT_TRUE(has_warning(lacking, "5916 B are from or to ports that the topology lacks"));
}

TEST(ModelBytes, ReadCountsAsTheRequestersRxAndTheRespondersTx) {
    NodeBuilder requester;
    const QpOptions qp{.qpn = 17};
    requester.usual(1)
        .qp(qp)
        .wire(qp, 15, {.requests = 3, .acks = 0}, {.responses = 4, .response_payload = 4096})
        .end();
    NodeBuilder responder({.hostname = "node1", .session_id = 2});
    const QpOptions back{.qpn = 18, .local = 2, .remote = 1, .remote_qpn = 17};
    responder.usual(2)
        .qp(back)
        .wire(back, 15, {.responses = 4, .response_payload = 4096}, {.requests = 3})
        .end();
    const Model model = model_of({requester.bytes(), responder.bytes()});
    EXPECT_EQ(qp_of(model, "node0", 17).bytes.tx_payload_bytes, 0U);
    EXPECT_EQ(qp_of(model, "node0", 17).bytes.rx_payload_bytes, 4096U);
    EXPECT_EQ(qp_of(model, "node1", 18).bytes.tx_payload_bytes, 4096U);
    EXPECT_EQ(qp_of(model, "node1", 18).bytes.tx_response_wire_bytes, 4 * 58 + 4096U);
}

TEST(ModelBytes, DatagramsGoToEachDestinationsTier) {
    NodeBuilder node;
    const QpOptions qp{.qpn = 17};
    node.usual(1).datagram_qp(qp);
    node.wire(qp, 15, {.requests = 30, .request_payload = 3000}, {});
    node.ud_peer(qp, 15, 2, 18, 10, 1580, 1000).ud_peer(qp, 15, 3, 18, 15, 2370, 1500).end();
    const Model model = model_of({node.bytes()});
    const Qp &found = qp_of(model, "node0", 17);
    ASSERT_EQ(found.ud_peers.size(), 2U);
    EXPECT_EQ(found.tier, Tier::Spine) << "the highest of its destinations'";
    EXPECT_EQ(model.tiers[index_of(Tier::Leaf)].tx_wire_bytes, 1580U);
    EXPECT_EQ(model.tiers[index_of(Tier::Spine)].tx_payload_bytes, 1500U);
    // Five frames went to destinations that are in no record.
    EXPECT_EQ(model.tiers[index_of(Tier::Unknown)].tx_wire_bytes, 30 * 58 + 3000 - 1580 - 2370U);
    EXPECT_EQ(model.total.tx_wire_bytes, 30 * 58 + 3000U);
}

TEST(ModelBytes, DatagramQueuePairsCountOnceInATierAndAPair) {
    NodeBuilder node;
    const QpOptions qp{.qpn = 17};
    node.usual(1).datagram_qp(qp).wire(qp, 15, {.requests = 30}, {});
    node.ud_peer(qp, 15, 2, 18, 10, 580, 0).ud_peer(qp, 15, 2, 19, 10, 580, 0);
    node.ud_peer(qp, 15, 3, 18, 10, 580, 0).end();
    const Model model = model_of({node.bytes()});
    EXPECT_EQ(model.tiers[index_of(Tier::Leaf)].qps, 1U);
    EXPECT_EQ(model.tiers[index_of(Tier::Leaf)].tx_wire_bytes, 1160U);
    EXPECT_EQ(model.tiers[index_of(Tier::Spine)].qps, 1U);
    ASSERT_EQ(model.node_pairs.size(), 2U);
    EXPECT_EQ(model.node_pairs[0].all.qps, 1U);
    EXPECT_EQ(model.node_pairs[0].all.tx_wire_bytes, 1160U);
    EXPECT_EQ(model.node_pairs[1].all.qps, 1U);
}

TEST(ModelBytes, NotMeasuredIsNull) {
    NodeBuilder node({.flags = CW_NODE_FIRST_SEGMENT});
    node.device(0, "mlx5_0", 0).port().gid(1).qp({.qpn = 17}).end();
    const Model model = model_of({node.bytes()});
    const Qp &qp = qp_of(model, "node0", 17);
    EXPECT_EQ(qp.bytes.rung, BytesRung::None);
    EXPECT_FALSE(qp.bytes.tx_payload_bytes);
    EXPECT_FALSE(qp.bytes.tx_wire_bytes);
    EXPECT_FALSE(model.total.tx_wire_bytes);
    EXPECT_EQ(model.total.qps_without_bytes, 1U);
    EXPECT_TRUE(has_warning(model, "bytes not measured"));
    EXPECT_EQ(model.ports.at(0).bytes.source, "none");
    EXPECT_FALSE(model.ports.at(0).bytes.tx_wire_bytes);
    EXPECT_FALSE(model.ports.at(0).bytes.explained_tx_bytes);
}

TEST(ModelBytes, WithPacketCountsAQueuePairWithoutARecordIsZero) {
    NodeBuilder node;
    node.usual(1).qp({.qpn = 17}).end();
    const Model model = model_of({node.bytes()});
    EXPECT_EQ(qp_of(model, "node0", 17).bytes.tx_wire_bytes, 0U);
    NodeBuilder broken;
    broken.device()
        .port()
        .gid(1)
        .source("rxe_wire", CW_SOURCE_DEGRADED, "half of it")
        .qp({.qpn = 17})
        .end();
    EXPECT_FALSE(qp_of(model_of({broken.bytes()}), "node0", 17).bytes.tx_wire_bytes);
}

TEST(ModelBytes, SourceThatFailedLaterDoesNotMeasureZero) {
    NodeBuilder posts({.flags = CW_NODE_FIRST_SEGMENT | CW_NODE_POSTS});
    posts.device().port().gid(1).source("posts").qp({.qpn = 17});
    EXPECT_EQ(qp_of(model_of({posts.bytes()}), "node0", 17).bytes.tx_payload_bytes, 0U);
    posts.source("posts", CW_SOURCE_DEGRADED, "no ibv_wr_* call is counted");
    posts.source("posts").end();
    const Model model = model_of({posts.bytes()});
    EXPECT_FALSE(qp_of(model, "node0", 17).bytes.tx_payload_bytes);
    EXPECT_TRUE(has_warning(model, "no ibv_wr_* call is counted"));

    const QpOptions qp{.qpn = 17};
    NodeBuilder wire;
    wire.usual(1).qp(qp).wire(qp, 12, {.requests = 10, .request_payload = 1000, .first = 11}, {});
    EXPECT_EQ(qp_of(model_of({wire.bytes()}), "node0", 17).bytes.tx_payload_bytes, 1000U);
    wire.source("rxe_wire", CW_SOURCE_REFUSED, "another layout").end();
    EXPECT_FALSE(qp_of(model_of({wire.bytes()}), "node0", 17).bytes.tx_payload_bytes)
        << "counted in part";
}

cw_probe taken_off(std::string_view source, std::string_view function, double time) {
    auto probe = make_record<cw_probe>(CW_KIND_PROBE, seconds(time));
    probe.flags = CW_PROBE_TAKEN_OFF;
    set_text(probe.source, source);
    set_text(probe.function, function);
    return probe;
}

TEST(ModelBytes, ProbesThatWereTakenOffLeaveIncompleteBytes) {
    NodeBuilder node({.flags = CW_NODE_FIRST_SEGMENT | CW_NODE_POSTS});
    const QpOptions before{.qpn = 17, .created = 10}, during{.qpn = 18, .created = 10},
        after{.qpn = 19, .created = 14};
    node.device().port().gid(1).source("posts").qp(before).qp(during);
    node.posts(before, 11, CW_POST_WRITE, 1, 4000).destroy(before, 11.5);
    node.posts(during, 13, CW_POST_WRITE, 2, 4000);
    node.add(taken_off("posts", "post_send", 13))
        .source("posts", CW_SOURCE_DEGRADED, "--budget 0.3%: taken off");
    const Model model = model_of({node.qp(after).end().bytes()});
    EXPECT_EQ(qp_of(model, "node0", 17).bytes.tx_payload_bytes, 4000U);
    EXPECT_TRUE(qp_of(model, "node0", 17).damaged_by.empty());
    EXPECT_EQ(qp_of(model, "node0", 18).bytes.tx_payload_bytes, 8000U);
    EXPECT_EQ(qp_of(model, "node0", 18).damaged_by, std::vector<std::string>{"taken_off"});
    EXPECT_FALSE(qp_of(model, "node0", 19).bytes.tx_payload_bytes);
    EXPECT_TRUE(has_warning(model, "--budget 0.3%: taken off"));
}

TEST(ModelBytes, PostedOnlyTakesReceivedBytesFromThePeersPosts) {
    constexpr std::uint32_t flags = CW_NODE_FIRST_SEGMENT | CW_NODE_POSTS;
    NodeBuilder a({.flags = flags});
    const QpOptions qp{.qpn = 17};
    a.device().port().gid(1).source("posts").qp(qp);
    a.posts(qp, 15, CW_POST_WRITE, 10, 4000).end();
    NodeBuilder b({.hostname = "node1", .session_id = 2, .flags = flags});
    const QpOptions back{.qpn = 18, .local = 2, .remote = 1, .remote_qpn = 17};
    b.device().port().gid(2).source("posts").qp(back);
    b.posts(back, 15, CW_POST_READ, 5, 2000).end();

    const Model both = model_of({a.bytes(), b.bytes()});
    const QpBytes &writer = qp_of(both, "node0", 17).bytes;
    EXPECT_EQ(writer.rung, BytesRung::Posted);
    EXPECT_EQ(writer.tx_payload_bytes, 40000U) << "what the peer reads is the peer's rx";
    EXPECT_EQ(writer.rx_payload_bytes, 0U);
    EXPECT_TRUE(writer.rx_from_peer);
    EXPECT_FALSE(writer.retransmitted_wire_bytes) << "posts know nothing of retransmissions";
    const QpBytes &reader = qp_of(both, "node1", 18).bytes;
    EXPECT_EQ(reader.tx_payload_bytes, 0U);
    EXPECT_EQ(reader.rx_payload_bytes, 50000U);

    const Model alone = model_of({a.bytes()});
    EXPECT_FALSE(qp_of(alone, "node0", 17).bytes.rx_payload_bytes);
    EXPECT_EQ(qp_of(alone, "node0", 17).bytes.tx_payload_bytes, 40000U);
}

TEST(ModelBytes, AtomicsAreEightBytesOfTheRequestersRx) {
    NodeBuilder node({.flags = CW_NODE_FIRST_SEGMENT | CW_NODE_POSTS});
    const QpOptions qp{.qpn = 17, .remote = 1, .remote_qpn = 17};
    node.device().port().gid(1).source("posts").qp(qp).posts(qp, 15, CW_POST_ATOMIC, 7, 8).end();
    const Model model = model_of({node.bytes()});
    const Qp &found = qp_of(model, "node0", 17);
    EXPECT_EQ(found.pairing, Pairing::Paired) << "with itself";
    EXPECT_EQ(found.tier, Tier::Self);
    EXPECT_EQ(found.bytes.tx_payload_bytes, 0U);
    EXPECT_EQ(found.bytes.rx_payload_bytes, 56U);
}

TEST(ModelBytes, PostsOfUnknownQueuePairsAreReported) {
    NodeBuilder node({.flags = CW_NODE_FIRST_SEGMENT | CW_NODE_POSTS});
    const QpOptions qp{.qpn = 17};
    node.usual(1).source("posts").qp(qp);
    node.posts({.qpn = 99}, 15, CW_POST_SEND, 3, 100);                        // no such number
    node.posts({.qpn = 17, .pid = 101}, 15, CW_POST_SEND, 3, 100);            // another process
    node.posts({.qpn = 17, .created = 11}, 15, CW_POST_SEND, 3, 100, "rxe9"); // another device
    node.posts({.qpn = 17}, 15, CW_POST_SEND, 3, 100, "",
               0x9000); // the device was lost; only one can be meant
    const Model model = model_of({node.end().bytes()});
    // The third has the key of no other, so it is not the first context's.
    EXPECT_EQ(model.unmatched_posts.size(), 3U);
    EXPECT_EQ(qp_of(model, "node0", 17).posted_tx_payload_bytes, 300U);
    EXPECT_TRUE(has_warning(model, "900 B were posted on 3 queue pair(s)"));
}

TEST(ModelBytes, PostsWithoutADeviceMatchNoneOfSeveralQueuePairs) {
    NodeBuilder node({.flags = CW_NODE_FIRST_SEGMENT | CW_NODE_POSTS});
    node.usual(1).source("posts").device(1, "rxe1").port(1).gid(4, 1);
    node.qp({.qpn = 17}).qp({.qpn = 17, .local = 4, .dev_index = 1});
    node.posts({.qpn = 17}, 15, CW_POST_SEND, 3, 100, "");
    const Model model = model_of({node.end().bytes()});
    ASSERT_EQ(model.unmatched_posts.size(), 1U);
    EXPECT_EQ(model.unmatched_posts[0].reason,
              "the device is not known, and several queue pairs have this number");
    for (const Qp &qp : model.qps)
        EXPECT_EQ(qp.posted_tx_payload_bytes.value_or(0), 0U);
}

// It is discovered after its owner posted.
TEST(ModelBytes, PostsBeforeTheDiscoveryBelongToAPreexistingQueuePair) {
    for (const bool was_there : {true, false}) {
        NodeBuilder node({.flags = CW_NODE_FIRST_SEGMENT | CW_NODE_POSTS});
        cw_qp_event event =
            NodeBuilder::connect_event({.qpn = 17, .created = 11.4}, CW_KIND_QP_EXISTING, 11.4);
        event.flags |= was_there ? std::uint32_t{CW_QP_PREEXISTING} : 0U;
        node.usual(1).source("posts").add(event);
        node.posts({.qpn = 17, .created = 11}, 15, CW_POST_SEND, 3, 100);
        const Model model = model_of({node.end().bytes()});
        EXPECT_EQ(model.unmatched_posts.size(), was_there ? 0U : 1U);
        EXPECT_EQ(qp_of(model, "node0", 17).posted_tx_payload_bytes.value_or(0),
                  was_there ? 300U : 0U);
    }
}

TEST(ModelBytes, PostsMatchTheQueuePairAliveThen) {
    NodeBuilder node({.flags = CW_NODE_FIRST_SEGMENT | CW_NODE_POSTS});
    const QpOptions first{.qpn = 17, .created = 11};
    const QpOptions second{.qpn = 17, .created = 14};
    node.device().port().gid(1).source("posts").qp(first).destroy(first, 13).qp(second);
    node.posts(second, 15, CW_POST_SEND, 1, 100, "rxe0", 0xb000);
    node.posts(first, 12, CW_POST_SEND, 1, 7000, "rxe0", 0xa000);
    const Model model = model_of({node.end().bytes()});
    ASSERT_EQ(model.qps.size(), 2U);
    EXPECT_EQ(model.qps[0].bytes.tx_payload_bytes, 7000U);
    EXPECT_EQ(model.qps[1].bytes.tx_payload_bytes, 100U);
}

TEST(ModelBytes, LossMarksTheBytesItMayAffect) {
    NodeBuilder node = sender();
    node.loss(CW_LOSS_WIRE_TABLE, 0, 5)
        .loss(CW_LOSS_WIRE_TABLE, 0, 7)
        .loss(CW_LOSS_WIRE_TABLE, 3, 2);
    const Model model = model_of({node.bytes(), receiver().bytes()});
    EXPECT_EQ(model.lost_records, 9U) << "cumulative a class and CPU";
    ASSERT_EQ(model.loss.size(), 2U);
    EXPECT_EQ(model.loss[1].cpu, 3);
    EXPECT_EQ(qp_of(model, "node0", 17).damaged_by, std::vector<std::string>{"wire_table"});
    EXPECT_TRUE(qp_of(model, "node1", 18).damaged_by.empty());
    EXPECT_TRUE(model.warnings.at(0).starts_with("LOSS")) << model.warnings.at(0);
}

// Ties of posts to queue pairs come by the ring buffer, frames do not.
TEST(ModelBytes, StalledRingBufferDamagesPosts) {
    NodeBuilder posts({.flags = CW_NODE_FIRST_SEGMENT | CW_NODE_POSTS});
    posts.device().port().gid(1).source("posts").qp({.qpn = 17});
    posts.posts({.qpn = 17}, 12, CW_POST_SEND, 1, 100).loss(CW_LOSS_RING_UNREAD, 0, 1);
    EXPECT_EQ(qp_of(model_of({posts.end().bytes()}), "node0", 17).damaged_by,
              std::vector<std::string>{"ring_unread"});
    NodeBuilder frames = sender();
    frames.loss(CW_LOSS_RING_UNREAD, 0, 1);
    EXPECT_TRUE(qp_of(model_of({frames.bytes()}), "node0", 17).damaged_by.empty());
}

TEST(ModelBytes, UnfollowedCallsMarkFramesIncomplete) {
    NodeBuilder node = sender();
    node.loss(CW_LOSS_CALL_TABLE, 0, 1);
    EXPECT_EQ(qp_of(model_of({node.bytes()}), "node0", 17).damaged_by,
              std::vector<std::string>{"call_table"});
}

TEST(ModelBytes, DevxQueuePairIsNotMeasuredByPosts) {
    NodeBuilder node({.flags = CW_NODE_FIRST_SEGMENT | CW_NODE_POSTS});
    node.device(0, "mlx5_0", 0).port().gid(1).source("posts").qp({.qpn = 17});
    for (const std::uint32_t qpn : {18U, 19U}) {
        auto made = NodeBuilder::connect_event({.qpn = qpn}, CW_KIND_QP_STATE, 12);
        made.flags |= CW_QP_DEVX;
        node.add(made);
    }
    node.posts({.qpn = 19}, 15, CW_POST_SEND, 1, 100, "mlx5_0");
    const Model model = model_of({node.end().bytes()});
    EXPECT_EQ(qp_of(model, "node0", 17).bytes.tx_payload_bytes, 0U);
    EXPECT_EQ(qp_of(model, "node0", 18).bytes.rung, BytesRung::None);
    EXPECT_FALSE(qp_of(model, "node0", 18).bytes.tx_payload_bytes);
    EXPECT_EQ(model.total.qps_without_bytes, 1U);
    EXPECT_EQ(qp_of(model, "node0", 19).bytes.tx_payload_bytes, 100U) << "has posts all the same";
}

TEST(ModelBytes, FailedModifySetsNoPort) {
    NodeBuilder node;
    const QpOptions qp{.qpn = 17};
    node.usual(1).qp(qp);
    auto failed = NodeBuilder::qp_event(qp, CW_KIND_QP_STATE, 14);
    failed.port = 2;
    failed.result = -22;
    EXPECT_EQ(qp_of(model_of({node.add(failed).end().bytes()}), "node0", 17).port_number, 1U);
}

} // namespace
} // namespace collwire::model
