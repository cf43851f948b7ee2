// SPDX-License-Identifier: Apache-2.0
// The finding of devices that are not the nearest to their GPU.
#include "collwire/nccl_connection_records.h"
#include "collwire/node_records.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "tests/support/gpu_node.h"
#include "tests/support/model_of.h"

namespace collwire::nccl {
namespace {

using namespace collwire::test;

constexpr std::string_view GPU_AT = "0000:03:00.0";
constexpr std::string_view GPU_PATH = "pci0000:00/0000:00:01.0/0000:01:00.0/0000:03:00.0";
constexpr RankOptions RANK{.bus_id = bus_id_of(0x03)};
constexpr std::string_view BY_PLACE = "further from their GPU on PCI";
constexpr std::string_view BY_CPUS = "By the CPUs that the process may run on";

constexpr Nic SAME_SWITCH{"0000:04:00.0", "pci0000:00/0000:00:01.0/0000:01:00.0/0000:04:00.0"};
constexpr Nic SAME_NODE{"0000:41:00.0", "pci0000:40/0000:40:01.0/0000:41:00.0"};
constexpr Nic SAME_BRIDGE{"0000:05:00.0", "pci0000:00/0000:00:02.0/0000:05:00.0", -1};
constexpr Nic OTHER_NODE{"0000:81:00.0", "pci0000:80/0000:80:01.0/0000:81:00.0", 1};
constexpr Nic UNKNOWN_NODE{"0000:81:00.0", "pci0000:80/0000:80:01.0/0000:81:00.0", -1};

// What the findings say; empty: nothing.
std::string said_of(const model::Model &model) {
    std::string said;
    for (const Finding &finding : model.nccl.findings)
        if (finding.kind == "far_nic")
            said += finding.what + "\n";
    return said;
}
std::string said_of(GpuNode &node) {
    return said_of(model_of({node.bytes()}));
}
// With these devices; a connection over the first of them.
std::string said_of_first(const std::vector<Nic> &nics, std::int32_t gpu_node = 0) {
    GpuNode node;
    node.gpu(GPU_AT, GPU_PATH, gpu_node).process(1).rank(RANK);
    for (const Nic &nic : nics)
        node.nic(nic);
    return said_of(node.sends(RANK, {0}));
}
bool has(const std::string &text, std::string_view words) {
    return text.find(words) != std::string::npos;
}

TEST(NcclFarNics, TheSameSwitchIsNearerThanTheSameNode) {
    for (const Nic &used : {SAME_NODE, SAME_BRIDGE, OTHER_NODE, UNKNOWN_NODE}) {
        const std::string said = said_of_first({used, SAME_SWITCH});
        EXPECT_TRUE(has(said, BY_PLACE)) << used.address;
        EXPECT_TRUE(has(said, "1 connection(s)")) << said;
        EXPECT_TRUE(has(said, "node0 mlx5_0 (GPU 0000:03:00.0)")) << said;
        EXPECT_FALSE(has(said, BY_CPUS)) << said;
    }
    EXPECT_EQ(said_of_first({SAME_SWITCH, SAME_NODE, OTHER_NODE}), "");
}

TEST(NcclFarNics, TheSameNodeOrHostBridgeIsNearerThanAnother) {
    for (const Nic &other : {SAME_NODE, SAME_BRIDGE})
        EXPECT_TRUE(has(said_of_first({OTHER_NODE, other}), BY_PLACE)) << other.address;
    EXPECT_EQ(said_of_first({SAME_NODE, SAME_BRIDGE}), "");
    EXPECT_EQ(said_of_first({SAME_BRIDGE, SAME_NODE}), "");
    Nic bridge_of_other_node = SAME_BRIDGE;
    bridge_of_other_node.numa_node = 1;
    EXPECT_EQ(said_of_first({bridge_of_other_node, SAME_NODE}), "");
    EXPECT_EQ(said_of_first({OTHER_NODE, OTHER_NODE}), "");
}

// Directly at it, as virtual machines often have them.
TEST(NcclFarNics, HostBridgeIsNotASwitch) {
    const RankOptions rank{.bus_id = bus_id_of(0x03)};
    GpuNode node;
    node.gpu(GPU_AT, "pci0000:00/0000:03:00.0")
        .nic(SAME_NODE)
        .nic({"0000:04:00.0", "pci0000:00/0000:04:00.0"})
        .rank(rank)
        .sends(rank, {0});
    EXPECT_EQ(said_of(node), "");
}

TEST(NcclFarNics, UnknownNodeIsNotAnotherNode) {
    EXPECT_EQ(said_of_first({UNKNOWN_NODE, SAME_NODE}), "") << "it may be the GPU's";
    EXPECT_EQ(said_of_first({OTHER_NODE, UNKNOWN_NODE}), "") << "nor is it known to be";
    EXPECT_EQ(said_of_first({UNKNOWN_NODE, OTHER_NODE}, -1), "");
    EXPECT_EQ(said_of_first({OTHER_NODE, SAME_NODE}, -1), "");
    EXPECT_TRUE(has(said_of_first({OTHER_NODE, SAME_BRIDGE}), BY_PLACE));
}

// Too long for its record, or of a device without one.
TEST(NcclFarNics, UnknownPathIsComparedByNumaNode) {
    constexpr Nic on_node{"0000:41:00.0", "", 0}, elsewhere{"0000:81:00.0", "", 1};
    EXPECT_EQ(said_of_first({on_node, SAME_SWITCH}), "") << "it may have that switch, too";
    EXPECT_EQ(said_of_first({on_node, SAME_NODE}), "");
    EXPECT_TRUE(has(said_of_first({elsewhere, SAME_SWITCH}), BY_PLACE));
    EXPECT_TRUE(has(said_of_first({elsewhere, on_node}), BY_PLACE));
}

TEST(NcclFarNics, OnlyActiveHardwareIsNearer) {
    Nic down = SAME_SWITCH, software = SAME_SWITCH;
    down.port_state = 1;
    software.flags = CW_DEVICE_SOFTWARE;
    EXPECT_EQ(said_of_first({OTHER_NODE, down}), "");
    EXPECT_EQ(said_of_first({OTHER_NODE, software}), "");
    software = OTHER_NODE;
    software.flags = CW_DEVICE_SOFTWARE;
    EXPECT_EQ(said_of_first({software, SAME_SWITCH}), "");
}

TEST(NcclFarNics, OneOfSeveralDevices) {
    GpuNode node;
    node.gpu(GPU_AT, GPU_PATH).nic(SAME_SWITCH).nic(OTHER_NODE).nic(SAME_NODE).rank(RANK);
    node.sends(RANK, {0, 1}).sends(RANK, {0}).sends(RANK, {2}, 0, false);
    const std::string said = said_of(node);
    EXPECT_TRUE(has(said, "1 connection(s)")) << "what receives is none: " << said;
    EXPECT_TRUE(has(said, "node0 mlx5_1 (GPU")) << said;
    EXPECT_FALSE(has(said, "mlx5_0 (GPU")) << said;
}

TEST(NcclFarNics, UsesTheProcesssCpusIfTheGpusPlaceIsUnknown) {
    const RankOptions no_bus_id{};
    const RankOptions no_record{.bus_id = bus_id_of(0x77)};
    for (const RankOptions &rank : {no_bus_id, no_record}) {
        GpuNode node;
        node.gpu(GPU_AT, GPU_PATH).process(0).nic(OTHER_NODE).nic(SAME_SWITCH).rank(rank);
        node.sends(rank, {0}).sends(rank, {1});
        const std::string said = said_of(node);
        EXPECT_TRUE(has(said, "1 connection(s)")) << said;
        EXPECT_TRUE(has(said, BY_CPUS)) << said;
        EXPECT_TRUE(has(said, "node0 mlx5_0")) << said;
        EXPECT_FALSE(has(said, BY_PLACE)) << said;
    }
}

TEST(NcclFarNics, IgnoresTheProcesssCpusIfTheGpusPlaceIsKnown) {
    GpuNode node;
    node.gpu(GPU_AT, GPU_PATH).process(1).nic(SAME_NODE).nic(OTHER_NODE).rank(RANK);
    EXPECT_EQ(said_of(node.sends(RANK, {0})), "");
}

// Rank 0's data, posted by the proxy of rank 1.
class NcclFarNicsPxn : public testing::Test {
protected:
    NcclFarNicsPxn() {
        node_.gpu(GPU_AT, GPU_PATH).gpu("0000:83:00.0", "pci0000:80/0000:80:01.0/0000:83:00.0", 1);
        node_.nic(OTHER_NODE).nic(SAME_SWITCH);
        zero_.n_ranks = one_.n_ranks = elsewhere_.n_ranks = 4;
    }
    RankOptions zero_{.pid = 100, .bus_id = bus_id_of(0x03)};
    RankOptions one_{.pid = 101, .comm = 0xbeef0000, .rank = 1, .bus_id = bus_id_of(0x83)};
    RankOptions elsewhere_{.pid = 101, .comm = 0, .version = 0}; // rank 0 in the process of rank 1
    GpuNode node_;
};

TEST_F(NcclFarNicsPxn, TheGpuOfTheProxysRank) {
    node_.rank(zero_).rank(one_);
    node_.sends(elsewhere_, {0}, CW_NCCL_CONNECTION_OUTSIDE);
    node_.sends(elsewhere_, {1}, CW_NCCL_CONNECTION_OUTSIDE);
    const std::string said = said_of(node_);
    EXPECT_TRUE(has(said, "1 connection(s)")) << said;
    EXPECT_TRUE(has(said, "node0 mlx5_1 (GPU 0000:83:00.0)")) << said;
}

// Which of its GPUs that is for is not known: neither way shows it.
TEST_F(NcclFarNicsPxn, AProcessWithSeveralGpus) {
    one_.pid = elsewhere_.pid = 100;
    node_.process(0).rank(zero_).rank(one_);
    node_.sends(elsewhere_, {0}, CW_NCCL_CONNECTION_OUTSIDE);
    // What was read from the outside has the communicator of the data, and no proxy.
    node_.sends(zero_, {0}, CW_NCCL_CONNECTION_OUTSIDE);
    EXPECT_EQ(said_of(node_), "");
}

TEST_F(NcclFarNicsPxn, OwnConnectionsOfAProcessWithSeveralGpus) {
    one_.pid = 100;
    node_.rank(zero_).rank(one_);
    node_.sends(zero_, {0}).sends(one_, {0}).sends(zero_, {1}).sends(one_, {1});
    const std::string said = said_of(node_);
    EXPECT_TRUE(has(said, "2 connection(s)")) << said;
    EXPECT_TRUE(has(said, "node0 mlx5_0 (GPU 0000:03:00.0), node0 mlx5_1 (GPU 0000:83:00.0)"))
        << said;
}

TEST_F(NcclFarNicsPxn, ProcessWithoutACommunicatorIsJudgedByItsCpus) {
    node_.process(0, 101).rank(zero_);
    node_.sends(elsewhere_, {0}, CW_NCCL_CONNECTION_OUTSIDE);
    EXPECT_TRUE(has(said_of(node_), BY_CPUS));
}

// One of its communicators has no known GPU.
TEST_F(NcclFarNicsPxn, ProcessWithAnUnknownGpuIsJudgedByItsCpus) {
    RankOptions other = one_;
    other.comm = 0xabba0000;
    other.bus_id = 0;
    node_.process(0, 101).rank(zero_).rank(one_).rank(other);
    node_.sends(elsewhere_, {0}, CW_NCCL_CONNECTION_OUTSIDE);
    EXPECT_TRUE(has(said_of(node_), BY_CPUS));
}

TEST(NcclFarNics, AcceptsTextsThatNoRecorderWrites) {
    GpuNode node;
    node.nic(OTHER_NODE).nic(SAME_SWITCH).rank(RANK).sends(RANK, {0});
    auto function = make_record<cw_pci_function>(CW_KIND_PCI_FUNCTION, seconds(10));
    for (const std::string_view path : {"", "/", "//", "a//", "/pci0000:00/0000:00:01.0/x"}) {
        set_text(function.pci_address, GPU_AT);
        set_text(function.path, path);
        function.numa_node = 0;
        node.node().add(function);
        set_text(function.pci_address, SAME_SWITCH.address);
        function.numa_node = INT32_MIN;
        node.node().add(function);
    }
    std::memset(function.path, '/', sizeof(function.path)); // no zero after it
    node.node().add(function);
    set_text(function.pci_address, GPU_AT);
    function.numa_node = 0;
    node.node().add(function);
    std::memset(function.pci_address, '0', sizeof(function.pci_address));
    node.node().add(function);
    function.header.length_bytes = sizeof(cw_header); // not even an address
    node.node().add(function);
    const model::Model model = model_of({node.bytes()});
    EXPECT_EQ(said_of(model), "");
    EXPECT_EQ(model.captures.at(0).unusable_records, 1U);
    EXPECT_EQ(model.hosts.at(0).pci_places.size(), 4U);
}

TEST(NcclFarNics, Counts) {
    const model::Model model = model_of(far_nic_job());
    ASSERT_EQ(model.nccl.findings.size(), 2U);
    const Finding &far = model.nccl.findings[1]; // after the device that is not used
    EXPECT_EQ(far.kind, "far_nic");
    EXPECT_EQ(far.evidence.at("connections"), 1U);
    EXPECT_EQ(far.hosts, std::vector<std::string>{"node0"});
}

} // namespace
} // namespace collwire::nccl
