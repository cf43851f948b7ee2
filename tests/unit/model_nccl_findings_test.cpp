// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_launch_records.h"
#include "collwire/node_records.h"
#include "collwire/record_kinds.h"
#include "correlate/nccl/param_text.h"
#include "tests/support/model_of.h"
#include "tests/support/nccl_builder.h"

namespace collwire::nccl {
namespace {

using namespace collwire::test;

const Finding *find(const model::Model &model, std::string_view kind) {
    for (const Finding &finding : model.nccl.findings)
        if (finding.kind == kind)
            return &finding;
    return nullptr;
}

std::vector<std::string> kinds(const model::Model &model) {
    std::vector<std::string> result;
    for (const Finding &finding : model.nccl.findings)
        result.push_back(finding.kind);
    return result;
}

TEST(NcclFindings, GoodPairHasOnlyTheGpuDirectFinding) {
    RingPair ring;
    ring.all_gather(12, 1000).sample(20);
    const model::Model model = model_of(ring.captures());
    EXPECT_EQ(kinds(model), std::vector<std::string>{"gpu_direct_off"});
    EXPECT_NE(model.nccl.findings[0].what.find("rxe0 (software)"), std::string::npos);
    EXPECT_EQ(model.nccl.findings[0].evidence.at("connections"), 4U);
    EXPECT_EQ(model.nccl.findings[0].communicators, std::vector<Index>{0});
}

TEST(NcclFindings, TcpDespiteRdmaComesFirst) {
    NodeBuilder node({.flags = NCCL_NODE_FLAGS | CW_NODE_SOCKETS});
    node.usual(1);
    NcclBuilder rank(node, {});
    const CallOptions call{.count = 1000};
    rank.comm().socket_connection(11.2, SENDS_AT, true, 1, 33);
    rank.call(12, call).shape(12, 1, {call}, {rank.ring({.connection = SENDS_AT, .bytes = 4000})});
    rank.launch(12.1, 1, {call}).socket(12.5, 33, 4004);
    node.clock(20).end();
    const model::Model model = model_of({node.bytes()});
    ASSERT_FALSE(model.nccl.findings.empty());
    EXPECT_EQ(model.nccl.findings[0].kind, "tcp_with_rdma");
    EXPECT_EQ(model.nccl.findings[0].hosts, std::vector<std::string>{"node0"});
}

TEST(NcclFindings, UnusedDeviceIsNamed) {
    RingPair ring;
    ring.node[0].device(1, "rxe1").port(1).gid(11, 1);
    cw_port down = ring.node[1].port_record(10, 2);
    down.state = 1;
    ring.node[1].device(2, "rxe2").add(down);
    ring.all_gather(12, 1000).sample(20);
    const model::Model model = model_of(ring.captures());
    const Finding *unused = find(model, "unused_nic");
    ASSERT_NE(unused, nullptr);
    EXPECT_EQ(unused->evidence.at("devices"), 1U) << "one without an active port is none";
    EXPECT_NE(unused->what.find("node0 rxe1"), std::string::npos);
}

TEST(NcclFindings, DeviceOnAnotherNumaNodeIsFar) {
    RingPair ring;
    for (const auto &[index, name, numa] : {std::tuple{0U, "rxe0", 1}, {1U, "rxe1", 0}}) {
        auto device = make_record<cw_device>(CW_KIND_DEVICE, seconds(10.5));
        device.dev_index = index;
        device.flags = CW_DEVICE_SOFTWARE;
        device.n_ports = 1;
        device.numa_node = numa;
        set_text(device.name, name);
        ring.node[0].add(device);
    }
    ring.node[0].port(1);
    auto process = make_record<cw_process>(CW_KIND_PROCESS, seconds(11));
    process.pid = 100;
    process.start_boottime_ns = 5 * NS;
    process.numa_node = 0;
    ring.node[0].add(process);
    ring.all_gather(12, 1000).sample(20);
    const model::Model model = model_of(ring.captures());
    const Finding *far = find(model, "far_nic");
    ASSERT_NE(far, nullptr);
    EXPECT_EQ(far->evidence.at("connections"), 1U);
}

TEST(NcclFindings, DifferingEndsAreNamed) {
    RingPair ring;
    auto change = NodeBuilder::connect_event(RING_QPS[1][1], CW_KIND_QP_STATE, 12);
    change.path_mtu = 2;
    change.gid_type = CW_GID_IB;
    ring.node[1].add(change);
    ring.all_gather(12.5, 1000).sample(20);
    const model::Model model = model_of(ring.captures());
    ASSERT_NE(find(model, "mtu_differs"), nullptr);
    EXPECT_EQ(find(model, "mtu_differs")->evidence.at("queue_pairs"), 1U);
    EXPECT_NE(find(model, "mtu_differs")->what.find("node0 1024 against node1 512"),
              std::string::npos)
        << find(model, "mtu_differs")->what;
    EXPECT_EQ(find(model, "traffic_class_differs"), nullptr);
    ASSERT_NE(find(model, "gid_type_differs"), nullptr);
    EXPECT_EQ(find(model, "gid_type_differs")->evidence.at("queue_pairs"), 1U);
}

// NCCL takes the smaller MTU at both ends: its queue pairs do not differ then, but their ports do.
TEST(NcclFindings, PortsOfDifferentMtu) {
    RingPair ring;
    cw_port larger = ring.node[0].port_record(10.5);
    larger.active_mtu_bytes = 4096;
    ring.node[0].add(larger);
    ring.all_gather(12.5, 1000).sample(20);
    const model::Model model = model_of(ring.captures());
    const Finding *mtu = find(model, "mtu_differs");
    ASSERT_NE(mtu, nullptr);
    EXPECT_EQ(mtu->evidence.at("queue_pairs"), 2U);
    EXPECT_EQ(mtu->what,
              "the active MTU of the ports differs between the ends of 2 queue pair(s): node0 "
              "4096 against node1 1024. NCCL uses the smaller one on both. Fix: set both "
              "ports to one MTU");
    EXPECT_EQ(std::ranges::count(kinds(model), "mtu_differs"), 1);
}

// Of which no connection of NCCL's is known.
TEST(NcclFindings, PathMtuOfOtherApplicationsCounts) {
    RingPair ring;
    for (int i = 0; i < 2; ++i) {
        const QpOptions other{.qpn = 50,
                              .local = static_cast<std::uint8_t>(1 + i),
                              .remote = static_cast<std::uint8_t>(2 - i),
                              .remote_qpn = 50,
                              .pid = 900};
        auto connected = NodeBuilder::connect_event(other, CW_KIND_QP_STATE, 11.1);
        connected.path_mtu = i == 0 ? 3 : 5;
        ring.node[i].create(other).add(connected);
    }
    ring.all_gather(12.5, 1000).sample(20);
    const model::Model model = model_of(ring.captures());
    ASSERT_NE(find(model, "mtu_differs"), nullptr);
    EXPECT_EQ(find(model, "mtu_differs")->what, "the path MTU differs between the ends of 1 queue "
                                                "pair(s): node0 1024 against node1 4096");
}

struct TrafficClass {
    std::uint32_t version = 22809;
    std::uint8_t sender = 0; // of the connection from rank 0 to rank 1
    std::uint8_t receiver = 104;
    std::optional<std::int64_t> fifo = std::nullopt; // NCCL_IB_FIFO_TC of rank 1
};

bool differs(const TrafficClass &of) {
    RingPair ring({.version = of.version});
    for (const auto &[i, value] : {std::pair{0, of.sender}, {1, of.receiver}}) {
        auto change = NodeBuilder::connect_event(RING_QPS[i][i], CW_KIND_QP_STATE, 12);
        change.traffic_class = value;
        ring.node[i].add(change);
    }
    if (of.fifo) {
        auto param = make_record<cw_nccl_param>(CW_KIND_NCCL_PARAM, seconds(12));
        param.tgid = 200;
        param.value = *of.fifo;
        set_text(param.name, "IbFifoTc");
        ring.node[1].add(param);
    }
    ring.all_gather(12.5, 1000).sample(20);
    return find(model_of(ring.captures()), "traffic_class_differs") != nullptr;
}

// What the receiver sends over the connection may have a class of its own: NCCL_IB_FIFO_TC.
TEST(NcclFindings, TrafficClasses) {
    EXPECT_FALSE(differs({.fifo = 104})) << "as it was asked for";
    EXPECT_FALSE(differs({.version = 22403, .fifo = 104}));
    EXPECT_TRUE(differs({.fifo = -1}));
    EXPECT_TRUE(differs({.receiver = 255, .fifo = -1})) << "-1 is no class";
    EXPECT_TRUE(differs({.fifo = 96})) << "it has another one yet";
    EXPECT_TRUE(differs({.version = 22403})) << "each end takes its own NCCL_IB_TC";
    EXPECT_FALSE(differs({.version = 22809})) << "nothing else makes them differ";
    EXPECT_FALSE(differs({.sender = 104, .fifo = -1}));
}

TEST(NcclFindings, FromRailToRail) {
    RingPair ring;
    ring.all_gather(12, 1000).sample(20);
    const auto captures = ring.captures();
    EXPECT_EQ(find(model_of(captures), "cross_rail"), nullptr);
    const model::Model model = model_of(captures, R"({
  "collwire_topology": 1,
  "switches": [{"id": "leaf0", "tier": "leaf"}],
  "ports": [{"host": "node0", "device": "rxe0", "port": 1, "ip": "10.0.0.1", "switch": "leaf0", "rail": 0},
            {"host": "node1", "device": "rxe0", "port": 1, "ip": "10.0.0.2", "switch": "leaf0", "rail": 1}]})");
    ASSERT_NE(find(model, "cross_rail"), nullptr);
    EXPECT_EQ(find(model, "cross_rail")->evidence.at("connections"), 2U);
    EXPECT_EQ(find(model, "cross_rail")->evidence.at("payload_bytes"), 8000U);
}

TEST(NcclFindings, DifferingParametersAndCallsAreNamed) {
    RingPair ring;
    for (int i = 0; i < 2; ++i) {
        auto param = make_record<cw_nccl_param>(CW_KIND_NCCL_PARAM, seconds(11));
        param.tgid = i == 0 ? 100 : 200;
        param.value = i == 0 ? -1 : 106;
        set_text(param.name, "IbTc");
        ring.node[i].add(param);
        ring.rank[i].call(15, {.count = 7 + static_cast<std::uint64_t>(i)});
    }
    const model::Model model = model_of(ring.captures());
    ASSERT_NE(find(model, "parameter_differs"), nullptr);
    EXPECT_NE(find(model, "parameter_differs")->what.find("IbTc"), std::string::npos);
    EXPECT_NE(find(model, "parameter_differs")->what.find("not set (-1) on 1 rank(s)"),
              std::string::npos)
        << find(model, "parameter_differs")->what;
    ASSERT_NE(find(model, "calls_differ"), nullptr);
    EXPECT_EQ(model.nccl.findings[0].kind, "calls_differ") << "nothing is graver";
}

TEST(NcclFindings, UnsetParametersAreMarked) {
    EXPECT_EQ(param_text("CGAClusterSize", INT32_MIN), "not set (-2147483648)");
    EXPECT_EQ(param_text("BuffSize", -2), "not set (-2)");
    EXPECT_EQ(param_text("BuffSize", -1), "-1");
    EXPECT_EQ(param_text("IbTc", -1), "not set (-1)");
    EXPECT_EQ(param_text("IbTimeout", -1), "-1") << "a value like any other";
    EXPECT_EQ(param_text("BuffSize", 4194304), "4194304");
}

TEST(NcclFindings, RejectedCallsAreCounted) {
    RingPair ring;
    ring.all_gather(12, 1000);
    ring.rank[0].call(12.5, {.count = 9}).returned(12.5, 6);
    ring.rank[1].call(12.5, {.func = CW_NCCL_BROADCAST, .root = 7});
    ring.all_gather(13, 2000).sample(20);
    const model::Model model = model_of(ring.captures());
    const Finding *refused = find(model, "calls_refused");
    ASSERT_NE(refused, nullptr);
    EXPECT_EQ(refused->evidence.at("calls"), 2U);
    EXPECT_NE(refused->what.find("AllGather (ncclRemoteError)"), std::string::npos)
        << refused->what;
    EXPECT_NE(refused->what.find("Broadcast (bad arguments)"), std::string::npos) << refused->what;
    EXPECT_EQ(find(model, "calls_not_started"), nullptr) << "it is known which";
}

// NCCL counts one less than was called, and nothing shows which.
TEST(NcclFindings, CallsThatWereNotStartedAreCounted) {
    RingPair ring;
    ring.all_gather(12, 1000);
    for (int i = 0; i < 2; ++i)
        ring.rank[i].call(12.5, {.count = 9});
    ring.all_gather(13, 2000).all_gather(14, 3000).sample(20);
    const model::Model model = model_of(ring.captures());
    const Finding *missing = find(model, "calls_not_started");
    ASSERT_NE(missing, nullptr);
    EXPECT_EQ(missing->evidence.at("collectives"), 2U) << "one on each rank";
    // One that waits at the end of the recording was perhaps only called.
    RingPair waits;
    waits.all_gather(12, 1000).all_gather(13, 2000);
    waits.rank[0].call(14, {.count = 9});
    EXPECT_EQ(find(model_of(waits.captures()), "calls_not_started"), nullptr);
}

TEST(NcclFindings, DifferingBytesAreCounted) {
    RingPair ring;
    ring.all_gather(12, 1000).all_gather(12.1, 1000);
    ring.sends(0, 50);
    ring.sample(14).sample(20);
    const model::Model model = model_of(ring.captures());
    const Finding *bytes = find(model, "bytes_differ");
    ASSERT_NE(bytes, nullptr);
    EXPECT_EQ(bytes->evidence.at("more_bytes"), 50U);
    EXPECT_EQ(bytes->evidence.at("less_bytes"), 0U);
}

// `more` bytes that nothing was launched for, each between two operations of 4000 bytes of a job
// that ran before.
const Finding *difference_of_late(const std::vector<std::uint64_t> &more, model::Model &model) {
    RingPair ring({.flags = CW_NCCL_COMM_LAUNCHED, .launched = 7});
    ring.launched = 7;
    ring.all_gather(12, 1000).sample(13);
    double time = 17; // pauses in between
    for (const std::uint64_t bytes : more) {
        ring.sends(0, bytes);
        ring.all_gather(time, 1000).sample(time + 0.5);
        time += 4;
    }
    model = model_of(ring.sample(40).captures());
    return find(model, "bytes_differ");
}

// As many bytes as were launched may be those of what was launched before: its own come later.
TEST(NcclFindings, BytesInFlightAtTheStartAreNotADifference) {
    model::Model model;
    EXPECT_EQ(difference_of_late({4000, 0, 0}, model), nullptr);
    EXPECT_EQ(difference_of_late({0, 1000}, model), nullptr);
    const Finding *larger = difference_of_late({5000}, model);
    ASSERT_NE(larger, nullptr) << "more than was launched until the first pause";
    EXPECT_EQ(larger->evidence.at("more_bytes"), 5000U);
    const Finding *again = difference_of_late({50, 0, 50, 50}, model);
    ASSERT_NE(again, nullptr) << "it is sent once";
    EXPECT_EQ(again->evidence.at("more_bytes"), 100U);
}

} // namespace
} // namespace collwire::nccl
