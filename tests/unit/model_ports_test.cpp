// SPDX-License-Identifier: Apache-2.0
#include "collwire/loss_records.h"
#include "collwire/node_records.h"
#include "collwire/port_records.h"
#include "collwire/record_kinds.h"
#include "correlate/model/counters.h"
#include "tests/support/model_of.h"

namespace collwire::model {
namespace {

using namespace collwire::test;

constexpr QpOptions QP{.qpn = 17};

const PortBytes &bytes_of(const Model &model, std::size_t port = 0) {
    return model.ports.at(port).bytes;
}

TEST(ModelPorts, KnownAndOtherTrafficAddUpToTheCounter) {
    NodeBuilder node;
    node.usual(1).qp(QP).wire(QP, 20, {.requests = 10, .request_payload = 10000}, {.acks = 3});
    node.netdev(20, 10 * 58 + 10000 + 444, 3 * 62 + 111).end();
    const Model model = model_of({node.bytes()});
    EXPECT_EQ(bytes_of(model).source, "netdev");
    EXPECT_EQ(bytes_of(model).tx_wire_bytes, 10 * 58 + 10000 + 444U);
    EXPECT_EQ(bytes_of(model).explained_tx_bytes, 10 * 58 + 10000U);
    EXPECT_EQ(bytes_of(model).rx_wire_bytes, 3 * 62 + 111U);
    EXPECT_EQ(bytes_of(model).explained_rx_bytes, 3 * 62U);
    EXPECT_EQ(bytes_of(model).uncertainty_bytes, 0U) << "all was read at the same moments";
    EXPECT_EQ(model.ports[0].switch_id, "leaf0");
    EXPECT_EQ(model.ports[0].switch_port, "swp1");
    EXPECT_EQ(model.ports[0].rail, 0U);
}

TEST(ModelPorts, BytesToItselfNeverReachThePort) {
    NodeBuilder node;
    const QpOptions one{.qpn = 17, .local = 1, .remote = 1, .remote_qpn = 18};
    const QpOptions two{.qpn = 18, .local = 1, .remote = 1, .remote_qpn = 17};
    node.usual(1)
        .qp(one)
        .qp(two)
        .wire(one, 20, {.requests = 10, .request_payload = 10000}, {})
        .netdev(20, 99, 0)
        .end();
    const Model model = model_of({node.bytes()});
    EXPECT_EQ(qp_of(model, "node0", 17).tier, topology::Tier::Self);
    EXPECT_EQ(bytes_of(model).explained_tx_bytes, 0U);
    EXPECT_EQ(bytes_of(model).tx_wire_bytes, 99U);
    EXPECT_EQ(bytes_of(model).self_tx_wire_bytes, 10580U);
    EXPECT_EQ(model.tiers[index_of(topology::Tier::Self)].tx_wire_bytes, 10580U);
}

TEST(ModelPorts, ReadingLaterThanTheQueuePairsIsUncertainty) {
    NodeBuilder node;
    node.usual(1).qp(QP).wire(QP, 19.5, {.requests = 1}, {});
    node.counter(1, "tx_bytes", CW_COUNTER_NETDEV, CW_UNIT_LINK_BYTES);
    node.samples(10.5, {{1, 0, 0}})
        .samples(11.5, {{1, 0, 1000}})
        .samples(19, {{1, 0, 1000}})
        .samples(20, {{1, 0, 5000}});
    const Model model = model_of({node.end().bytes()});
    // Half a second before the first sample, half a second after the last queue pair's, at the
    // 4000 B/s of the fastest interval.
    EXPECT_EQ(bytes_of(model).uncertainty_bytes, 2000 + 2000U);
}

TEST(ModelPorts, BytesBeforeThePortsFirstReadingAreExcluded) {
    NodeBuilder node;
    node.usual(1).qp(QP).wire(QP, 10.4, {.requests = 100}, {.acks = 20});
    node.counter(1, "tx_bytes", CW_COUNTER_NETDEV, CW_UNIT_LINK_BYTES);
    node.samples(10.5, {{1, 0, 0}}).wire(QP, 19.9, {.requests = 130}, {.acks = 26});
    node.samples(20, {{1, 0, 40'000}});
    const Model model = model_of({node.end().bytes()});
    const std::uint64_t all = *model.total.tx_wire_bytes;
    EXPECT_EQ(bytes_of(model).explained_tx_bytes, all / 130 * 30);
    EXPECT_EQ(bytes_of(model).explained_rx_bytes, *model.total.rx_wire_bytes / 26 * 6);
}

TEST(ModelPorts, DatagramsToItselfNeverReachThePortEither) {
    const QpOptions sender{.qpn = 20};
    const QpOptions receiver{.qpn = 21};
    NodeBuilder node;
    node.usual(1).datagram_qp(sender).datagram_qp(receiver);
    // 2,320 of the 6,000 bytes to itself were counted before the port was read first.
    node.wire(sender, 10.4, {.requests = 40}, {}).wire(receiver, 10.4, {}, {.requests = 40});
    node.ud_peer(sender, 10.4, 1, 21, 40, 2320, 0);
    node.counter(1, "tx_bytes", CW_COUNTER_NETDEV, CW_UNIT_LINK_BYTES);
    node.counter(2, "rx_bytes", CW_COUNTER_NETDEV, CW_UNIT_LINK_BYTES);
    node.samples(10.5, {{1, 0, 0}, {2, 0, 0}});
    node.wire(sender, 19.9, {.requests = 40, .request_payload = 4680}, {})
        .wire(receiver, 19.9, {}, {.requests = 40, .request_payload = 3680});
    node.ud_peer(sender, 19.9, 1, 21, 40, 6000, 0).ud_peer(sender, 19.9, 2, 21, 10, 1000, 0);
    node.samples(20, {{1, 0, 1000}, {2, 0, 0}});
    const Model model = model_of({node.end().bytes()});
    EXPECT_EQ(bytes_of(model).self_tx_wire_bytes, 6000U);
    EXPECT_EQ(bytes_of(model).explained_tx_bytes, 1000U);
    EXPECT_EQ(bytes_of(model).explained_rx_bytes, 0U);
}

TEST(ModelPorts, CounterCoversItsOwnRecordingOnly) {
    NodeBuilder first;
    first.usual(1).qp(QP).wire(QP, 19, {.requests = 10}, {}).netdev(20, 580, 0).end(20);
    NodeBuilder second({.session_id = 2, .start = 30});
    const QpOptions later{.qpn = 19, .created = 31};
    second.usual(1).counter(1, "tx_bytes", CW_COUNTER_NETDEV, CW_UNIT_LINK_BYTES);
    second.samples(30, {{1, 0, 5580}}).qp(later).wire(later, 31.5, {.requests = 900}, {});
    const Model model = model_of({first.bytes(), second.bytes()});
    EXPECT_EQ(bytes_of(model).tx_wire_bytes, 580U);
    EXPECT_EQ(bytes_of(model).explained_tx_bytes, 580U);
    EXPECT_EQ(model.total.tx_wire_bytes, 910 * 58U);
    EXPECT_FALSE(has_warning(model, "more than its counter shows"));
}

TEST(ModelPorts, MoreThanTheCounterShowsMayBeLoss) {
    for (const bool with_loss : {false, true}) {
        NodeBuilder node;
        node.usual(1).qp(QP).wire(QP, 20, {.requests = 10}, {}).netdev(20, 80, 0);
        if (with_loss)
            node.loss(CW_LOSS_QP_EVENT, 0, 12);
        const Model model = model_of({node.end().bytes()});
        EXPECT_TRUE(has_warning(model, "sent 500 B more than its counter shows"));
        EXPECT_EQ(has_warning(model,
                              "(uncertainty 0 B); probably because records were lost on this host"),
                  with_loss);
    }
}

TEST(ModelPorts, RecoveryOfASourceIsSaid) {
    NodeBuilder node;
    node.usual(1);
    for (const unsigned second : {10U, 14U, 20U}) {
        auto source = make_record<cw_source>(CW_KIND_SOURCE, seconds(second));
        source.state = second == 10 ? CW_SOURCE_DEGRADED : CW_SOURCE_ON;
        source.dev_index = ~0U;
        set_text(source.name, "nccl");
        set_text(source.reason, second == 10 ? "its launches are not read" : "");
        node.add(source);
    }
    EXPECT_TRUE(has_warning(model_of({node.end().bytes()}),
                            "its launches are not read; resolved after 4000 ms"));
}

TEST(ModelPorts, SourceStateBeforeItsDeviceBelongsToTheDevice) {
    NodeBuilder node;
    for (const std::uint32_t dev_index : {0U, 7U}) {
        auto source = make_record<cw_source>(CW_KIND_SOURCE, seconds(10));
        source.state = CW_SOURCE_DEGRADED;
        source.dev_index = dev_index;
        set_text(source.name, "rxe_wire");
        set_text(source.reason, "half of it");
        node.add(source);
    }
    const Model model = model_of({node.usual(1).end().bytes()});
    const auto &sources = model.sessions.at(0).sources;
    EXPECT_EQ(sources.at({"rxe_wire", 0}).device, 0U);
    EXPECT_EQ(sources.at({"rxe_wire", 7}).device, NONE) << "never described";
    EXPECT_TRUE(has_warning(model, "node0 rxe0: half of it"));
}

TEST(ModelPorts, WithoutQpTracingKnownTrafficIsNull) {
    NodeBuilder node;
    node.device().port().gid(1).source("qp", CW_SOURCE_OFF).netdev(20, 1'000'000, 5).end();
    const Model model = model_of({node.bytes()});
    EXPECT_EQ(bytes_of(model).tx_wire_bytes, 1'000'000U);
    EXPECT_FALSE(bytes_of(model).explained_tx_bytes);
    EXPECT_FALSE(bytes_of(model).explained_rx_bytes);
    EXPECT_FALSE(bytes_of(model).self_tx_wire_bytes);
    EXPECT_TRUE(has_warning(model, "QP tracing was off in some recordings"));
    NodeBuilder watched;
    watched.usual(1).netdev(20, 1'000'000, 5).end();
    EXPECT_EQ(bytes_of(model_of({watched.bytes()})).explained_tx_bytes, 0U);
}

Model with_counter(cw_counter_source source, cw_counter_unit unit, std::string_view name,
                   std::string_view packets_name, cw_link_layer link_layer) {
    NodeBuilder node;
    node.device(0, "mlx5_0", 0);
    auto port = node.port_record(10);
    port.link_layer = link_layer;
    node.add(port).counter(1, name, source, unit).counter(2, packets_name, source, CW_UNIT_PACKETS);
    node.samples(10, {{1, 0, 100}, {2, 0, 10}}).samples(20, {{1, 0, 1100}, {2, 0, 30}});
    return model_of({node.end().bytes()});
}

TEST(ModelPorts, UnitsAreConverted) {
    const Model ib = with_counter(CW_COUNTER_PORT, CW_UNIT_OCTETS_4, "port_xmit_data",
                                  "port_xmit_packets", CW_LINK_INFINIBAND);
    EXPECT_EQ(bytes_of(ib).tx_wire_bytes, 4 * 1000 + 2 * 20U)
        << "the VCRC of each packet is on the link, too";
    EXPECT_EQ(bytes_of(ib).source, "port_counters");
    EXPECT_FALSE(bytes_of(ib).rx_wire_bytes);

    const Model roce = with_counter(CW_COUNTER_PORT, CW_UNIT_OCTETS_4, "port_xmit_data",
                                    "port_xmit_packets", CW_LINK_ETHERNET);
    EXPECT_EQ(bytes_of(roce).tx_wire_bytes, 4000U);
    EXPECT_GE(bytes_of(roce).uncertainty_bytes, 20 * 58U) << "headers may be missing";
    EXPECT_NE(bytes_of(roce).source_note.find("not documented"), std::string::npos);

    const Model unknown =
        with_counter(CW_COUNTER_HW, CW_UNIT_UNKNOWN, "tx_bytes", "tx_pkts", CW_LINK_ETHERNET);
    EXPECT_FALSE(bytes_of(unknown).tx_wire_bytes) << "an unknown unit is null";
    const Model no_rdma = with_counter(CW_COUNTER_NETDEV, CW_UNIT_LINK_BYTES, "tx_bytes",
                                       "tx_packets", CW_LINK_ETHERNET);
    EXPECT_FALSE(bytes_of(no_rdma).tx_wire_bytes) << "hardware sends past its network interface";
}

TEST(ModelPorts, CounterMayGoBackwardsOrDisappear) {
    NodeBuilder node;
    node.usual(1).counter(1, "tx_bytes", CW_COUNTER_NETDEV, CW_UNIT_LINK_BYTES);
    node.samples(10, {{1, 0, 1'000'000}})
        .samples(11, {{1, 0, 1'000'400}})
        .samples(12, {{1, 0, 30}});
    node.samples(13, {{1, 0, 50}}); // and is read no more
    const Model model = model_of({node.end().bytes()});
    EXPECT_EQ(bytes_of(model).tx_wire_bytes, 450U);
    EXPECT_EQ(bytes_of(model).counter_resets, 1U);
    EXPECT_TRUE(has_warning(model, "its byte counter went backwards"));

    NodeBuilder once;
    once.usual(1)
        .counter(1, "tx_bytes", CW_COUNTER_NETDEV, CW_UNIT_LINK_BYTES)
        .samples(10, {{1, 0, 5}, {9, 0, 5}})
        .end();
    const Model single = model_of({once.bytes()});
    EXPECT_FALSE(bytes_of(single).tx_wire_bytes) << "one sample is no growth";
    EXPECT_EQ(single.captures[0].unusable_records, 1U) << "counter 9 was never defined";
}

TEST(ModelPorts, ReusedDeviceIndexIsAnotherDevice) {
    NodeBuilder node;
    node.usual(1).counter(1, "tx_bytes", CW_COUNTER_NETDEV, CW_UNIT_LINK_BYTES);
    node.samples(10, {{1, 0, 1000}}).samples(11, {{1, 0, 2000}});
    node.device(0, "rxe1").port().counter(2, "tx_bytes", CW_COUNTER_NETDEV, CW_UNIT_LINK_BYTES);
    node.samples(13, {{2, 0, 50'000'000}}).samples(14, {{2, 0, 50'000'500}});
    const Model model = model_of({node.end().bytes()});
    ASSERT_EQ(model.ports.size(), 2U);
    EXPECT_EQ(bytes_of(model, 0).tx_wire_bytes, 1000U);
    EXPECT_EQ(bytes_of(model, 1).tx_wire_bytes, 500U);
}

TEST(ModelPorts, GrowthsAreJoinedAndBounded) {
    CounterSeries series(true);
    for (std::uint64_t i = 0; i < 5000; ++i)
        series.add({10 * i * NS, 10 * i * NS, i / 2});
    EXPECT_LE(series.growths().size(), MAX_GROWTHS);
    std::uint64_t sum = 0;
    for (const Growth &growth : series.growths())
        sum += growth.delta;
    EXPECT_EQ(sum, series.increase());
    EXPECT_EQ(series.increase(), 2499U);
    series.add({5, 5, 1'000'000}); // older than the last: was read already
    EXPECT_EQ(series.increase(), 2499U);
}

// ---- events

const Event *find_event(const Model &model, std::string_view kind) {
    for (const Event &event : model.events)
        if (event.kind == kind)
            return &event;
    return nullptr;
}

// Queue pair 17 sends again from 14 s to 16 s and hears nothing; carrier_changes is watched.
NodeBuilder cut(std::uint64_t rx_acks_after = 2) {
    NodeBuilder node;
    node.usual(1).qp(QP);
    node.counter(1, "carrier_changes", CW_COUNTER_NETDEV, CW_UNIT_EVENTS);
    node.counter(2, "completer_retry_err", CW_COUNTER_HW, CW_UNIT_EVENTS);
    node.samples(10, {{1, 0, 2}, {2, 0, 0}}).samples(14, {{1, 0, 2}, {2, 0, 0}});
    node.samples(15, {{1, 0, 2}, {2, 0, 3}}).samples(20, {{1, 0, 2}, {2, 0, 3}});
    node.wire(QP, 14, {.requests = 10, .request_payload = 1000, .first = 12},
              {.acks = 2, .first = 12});
    node.wire(QP, 15, {.requests = 10, .request_payload = 1000, .resent = 4, .first = 12},
              {.acks = rx_acks_after, .first = 12});
    return node;
}

TEST(ModelEvents, PathCutIsConcludedFromItsEffects) {
    const Model model = model_of({cut().end().bytes()});
    const Event *event = find_event(model, "suspected_path_loss");
    ASSERT_NE(event, nullptr);
    EXPECT_TRUE(event->derived);
    EXPECT_EQ(event->evidence.at("completer_retry_err"), 3U);
    EXPECT_EQ(event->evidence.at("retransmitted_frames"), 4U);
    EXPECT_EQ(event->evidence.at("qps_without_any_answer"), 1U);
    EXPECT_EQ(event->peers, std::vector<std::string>{"node1"});
    EXPECT_EQ(event->time_ns, 14 * NS);
    EXPECT_EQ(event->realtime_ns, BOOT_REALTIME_NS + 14 * NS);
    EXPECT_NE(event->what.find("carrier did not change"), std::string::npos) << event->what;
    ASSERT_NE(event->port, NONE);
    EXPECT_EQ(model.ports[event->port].netdev, "eth0");
    EXPECT_EQ(find_event(model_of({cut(5).end().bytes()}), "suspected_path_loss")
                  ->evidence.at("qps_without_any_answer"),
              0U);
}

TEST(ModelEvents, RepeatedDeviceRemovalIsOneEvent) {
    const auto gone = [](double time) {
        auto record = make_record<cw_device_gone>(CW_KIND_DEVICE_GONE, seconds(time), 0);
        set_text(record.device, "rxe0");
        return record;
    };
    const auto times = [](const Model &model) {
        std::vector<std::uint64_t> found;
        for (const Event &event : model.events)
            if (event.kind == "device_gone")
                found.push_back(event.time_ns);
        return found;
    };
    NodeBuilder twice;
    twice.usual(1).add(gone(12)).add(gone(12.5)).end();
    EXPECT_EQ(times(model_of({twice.bytes()})), std::vector<std::uint64_t>{seconds(12)});
    NodeBuilder back;
    back.usual(1).add(gone(12)).device().add(gone(15)).end();
    EXPECT_EQ(times(model_of({back.bytes()})),
              (std::vector<std::uint64_t>{seconds(12), seconds(15)}));
}

TEST(ModelEvents, LinkThatWentDownExplainsTheEffects) {
    const Model own = model_of(
        {cut().carrier(13.9, false).carrier(15.5, true).async_event(13.9, 10).end().bytes()});
    EXPECT_EQ(find_event(own, "suspected_path_loss"), nullptr);
    ASSERT_NE(find_event(own, "retransmissions"), nullptr);
    const Event *down = find_event(own, "carrier_down");
    ASSERT_NE(down, nullptr);
    EXPECT_EQ(own.devices[down->device].name, "rxe0");
    EXPECT_EQ(down->port_number, 1U);
    EXPECT_EQ(find_event(own, "port_err")->time_ns, seconds(13.9));

    NodeBuilder peer({.hostname = "node1", .session_id = 2, .clock_ahead = 1});
    peer.usual(2)
        .qp({.qpn = 18, .local = 2, .remote = 1, .remote_qpn = 17})
        .carrier(14, false)
        .end();
    const Model far = model_of({cut().end().bytes(), peer.bytes()});
    EXPECT_EQ(find_event(far, "suspected_path_loss"), nullptr);
    ASSERT_NE(find_event(far, "retransmissions"), nullptr);
    EXPECT_NE(find_event(far, "retransmissions")->what.find("peer's port node1 rxe0"),
              std::string::npos);
}

TEST(ModelEvents, LinkChangesOfPeersAreComparedWithClockOffsets) {
    for (const double clock_ahead : {30.0, -30.0}) {
        const auto peer = [&](double down) {
            NodeBuilder node(
                {.hostname = "node1", .session_id = 2, .start = 5, .clock_ahead = clock_ahead});
            node.usual(2).qp({.qpn = 18, .local = 2, .remote = 1, .remote_qpn = 17});
            return node.carrier(down, false).end(60).bytes();
        };
        EXPECT_NE(find_event(model_of({cut().end().bytes(), peer(14)}), "retransmissions"),
                  nullptr);
        // At the same time by clocks that are apart, so at another.
        const Model another = model_of({cut().end().bytes(), peer(14 + 31)});
        EXPECT_EQ(find_event(another, "retransmissions"), nullptr);
        EXPECT_NE(find_event(another, "suspected_path_loss"), nullptr);
    }
}

TEST(ModelEvents, QueuePairErrorsAndPortStates) {
    NodeBuilder node;
    node.usual(1).process(100, 5 * NS, "app").qp(QP);
    auto error = NodeBuilder::qp_event(QP, CW_KIND_QP_ERROR, 14);
    error.event = 1;
    node.add(error).add(error);
    auto down = node.port_record(15);
    down.state = 1;
    node.add(down).end();
    const Model model = model_of({node.bytes()});
    ASSERT_EQ(model.events.size(), 2U) << "the same record twice is one event";
    EXPECT_EQ(model.events[0].kind, "qp_error");
    EXPECT_EQ(model.events[0].qpn, 17U);
    EXPECT_EQ(model.processes[model.events[0].process].pid, 100U);
    EXPECT_EQ(model.events[1].kind, "port_state");
    EXPECT_EQ(model.events[1].what, "port state active -> down");
}

TEST(ModelEvents, MissedCarrierChangesShowInTheCounter) {
    NodeBuilder node;
    node.usual(1).counter(1, "carrier_down_count", CW_COUNTER_NETDEV, CW_UNIT_EVENTS);
    node.samples(12, {{1, 0, 2}}).samples(13, {{1, 0, 4}}).end();
    const Model unseen = model_of({node.bytes()});
    ASSERT_NE(find_event(unseen, "carrier_down"), nullptr);
    EXPECT_TRUE(find_event(unseen, "carrier_down")->derived);
    EXPECT_EQ(find_event(unseen, "carrier_down")->evidence.at("carrier_down_count"), 2U);
}

TEST(ModelLimits, EventsClocksAndAddressesOfOneCaptureAreBounded) {
    NodeBuilder node;
    node.usual(1);
    constexpr std::uint64_t beyond = 7;
    const auto bound_block = [&](std::uint64_t i) {
        if (i % 1000 == 0)
            node.capture().end_block();
    };
    for (std::uint64_t i = 0; i < MAX_EVENTS + beyond; ++i) {
        bound_block(i);
        node.async_event(12 + static_cast<double>(i) * 1e-6, 10);
    }
    for (std::uint64_t i = 0; i < MAX_CLOCK_ANCHORS + beyond - 1; ++i) { // the node's own is one
        bound_block(i);
        node.clock(10 + static_cast<double>(i) * 1e-6);
    }
    auto gid = make_record<cw_gid>(CW_KIND_GID, seconds(10));
    gid.port = 1;
    gid.gid[0] = 0x20;
    for (std::uint32_t i = 0; i < 5; ++i)
        node.add(gid);                                          // the same, again and again
    for (std::uint32_t i = 0; i < MAX_GIDS + beyond - 2; ++i) { // this one and 10.0.0.1 are two
        bound_block(i);
        std::memcpy(gid.gid + 4, &i, sizeof(i));
        gid.gid[8] = 1;
        node.add(gid);
    }
    for (std::uint64_t i = 0; i < MAX_PCI_FUNCTIONS + beyond; ++i) {
        bound_block(i);
        node.pci_function(std::to_string(i), "pci0000:00", 0);
    }
    node.pci_function("0", "pci0000:00", 1); // again
    const Model model = model_of({node.end().bytes()});
    EXPECT_EQ(model.captures[0].events_left_out, beyond);
    EXPECT_EQ(model.captures[0].anchors_left_out, beyond);
    EXPECT_EQ(model.captures[0].gids_left_out, beyond);
    EXPECT_EQ(model.captures[0].pci_functions_left_out, beyond);
    EXPECT_EQ(model.hosts.at(0).pci_places.size(), MAX_PCI_FUNCTIONS);
    EXPECT_EQ(model.captures[0].unusable_records, 4 * beyond);
    EXPECT_EQ(model.ports.at(0).gids.size(), MAX_GIDS);
    EXPECT_TRUE(has_warning(model, "7 events, 7 clock readings, 7 port addresses, 7 PCI "
                                   "functions, 0 "));
}

TEST(ModelLimits, PortBeyond255IsIgnored) {
    NodeBuilder node;
    node.usual(1);
    auto port = node.port_record(11);
    port.port = 256;
    node.add(port).async_event(12, 10, 256);
    auto def = make_record<cw_counter_def>(CW_KIND_COUNTER_DEF, seconds(12));
    def.id = 1;
    def.port = 70'000;
    set_text(def.name, "x");
    const Model model = model_of({node.add(def).end().bytes()});
    EXPECT_EQ(model.ports.size(), 1U);
    EXPECT_TRUE(model.events.empty());
    EXPECT_EQ(model.captures[0].unusable_records, 3U);
}

} // namespace
} // namespace collwire::model
