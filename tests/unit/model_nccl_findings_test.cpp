// SPDX-License-Identifier: Apache-2.0
#include "tests/support/model_of.h"
#include "tests/support/nccl_builder.h"

namespace collwire::identity {
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

TEST(NcclFindings, OfAGoodPairOnlyThatSoftwareDoesNoGpuDirect) {
    RingPair ring;
    ring.all_gather(12, 1000).sample(20);
    const model::Model model = model_of(ring.captures());
    EXPECT_EQ(kinds(model), std::vector<std::string>{"gpu_direct_off"});
    EXPECT_NE(model.nccl.findings[0].what.find("rxe0 (software)"), std::string::npos);
    EXPECT_EQ(model.nccl.findings[0].evidence.at("connections"), 4U);
    EXPECT_EQ(model.nccl.findings[0].communicators, std::vector<Index>{0});
}

TEST(NcclFindings, TcpBesideRdmaIsTheLoudest) {
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

TEST(NcclFindings, ADeviceThatIsNotUsed) {
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

TEST(NcclFindings, ADeviceOfAnotherNumaNode) {
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

TEST(NcclFindings, EndsThatDiffer) {
    RingPair ring;
    auto change = NodeBuilder::connect_event(RING_QPS[1][1], CW_KIND_QP_STATE, 12);
    change.path_mtu = 2;
    change.traffic_class = 104;
    ring.node[1].add(change);
    ring.all_gather(12.5, 1000).sample(20);
    const model::Model model = model_of(ring.captures());
    ASSERT_NE(find(model, "mtu_differs"), nullptr);
    EXPECT_EQ(find(model, "mtu_differs")->evidence.at("queue_pairs"), 1U);
    EXPECT_NE(find(model, "mtu_differs")->what.find("node0 1024 against node1 512"),
              std::string::npos)
        << find(model, "mtu_differs")->what;
    ASSERT_NE(find(model, "traffic_class_differs"), nullptr);
    EXPECT_EQ(find(model, "gid_type_differs"), nullptr);
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

TEST(NcclFindings, ParametersAndCallsThatDiffer) {
    RingPair ring;
    for (int i = 0; i < 2; ++i) {
        auto param = make_record<cw_nccl_param>(CW_KIND_NCCL_PARAM, seconds(11));
        param.tgid = i == 0 ? 100 : 200;
        param.value = i;
        set_text(param.name, "IbTc");
        ring.node[i].add(param);
        ring.rank[i].call(15, {.count = 7 + static_cast<std::uint64_t>(i)});
    }
    const model::Model model = model_of(ring.captures());
    ASSERT_NE(find(model, "parameter_differs"), nullptr);
    EXPECT_NE(find(model, "parameter_differs")->what.find("IbTc"), std::string::npos);
    ASSERT_NE(find(model, "calls_differ"), nullptr);
    EXPECT_EQ(model.nccl.findings[0].kind, "calls_differ") << "nothing is graver";
}

TEST(NcclFindings, RefusedCalls) {
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
    EXPECT_NE(refused->what.find("Broadcast (by its arguments)"), std::string::npos)
        << refused->what;
    EXPECT_EQ(find(model, "calls_not_started"), nullptr) << "it is known which";
}

// NCCL counts one less than was called, and nothing tells which.
TEST(NcclFindings, CallsThatWereNotStarted) {
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

TEST(NcclFindings, BytesThatDiffer) {
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

} // namespace
} // namespace collwire::identity
