// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "collwire/node_records.h"
#include "collwire/record_kinds.h"
#include "tests/unit/inventory_tree.h"
#include "userspace/inventory/module_origin.h"
#include "userspace/inventory/netdevs.h"
#include "userspace/inventory/rdma_devices.h"

namespace collwire::inventory {
namespace {

using test::Tree;

NetlinkFacts facts_of(std::initializer_list<std::pair<std::string, std::uint32_t>> devices) {
    NetlinkFacts facts;
    for (const auto &[name, index] : devices) {
        facts.devices[name].name = name;
        facts.devices[name].dev_index = index;
    }
    return facts;
}

TEST(RdmaDevices, InfiniBandHca) {
    const Tree tree;
    tree.pci_device("mlx5_0", "0000:17:00.0", "mlx5_core");
    tree.port("mlx5_0", 1, "InfiniBand", "400 Gb/sec (4X NDR)");
    const std::string port = "/sys/class/infiniband/mlx5_0/ports/1";
    tree.file(port + "/lid", "0x1a\n");
    tree.file(port + "/sm_lid", "0x1\n");
    tree.file(port + "/gids/1", "0000:0000:0000:0000:0000:0000:0000:0000\n");
    tree.file(port + "/gids/2", "fe80:0000:0000:0000:0000:0000:0000:0000\n");

    const auto devices = scan_rdma_devices(tree.root(), facts_of({{"mlx5_0", 7}}));
    ASSERT_EQ(devices.size(), 1u);
    const RdmaDevice &device = devices[0];
    EXPECT_TRUE(device.indexed);
    EXPECT_EQ(device.record.dev_index, 7u);
    EXPECT_EQ(device.record.header.kind, CW_KIND_DEVICE);
    EXPECT_EQ(device.record.header.length_bytes, sizeof(cw_device));
    EXPECT_EQ(device.record.node_guid, 0x506b4b0300cb7b2aULL);
    EXPECT_EQ(device.record.numa_node, 1);
    EXPECT_EQ(device.record.n_ports, 1u);
    EXPECT_STREQ(device.record.pci_address, "0000:17:00.0");
    EXPECT_STREQ(device.record.driver, "mlx5_core");
    EXPECT_STREQ(device.record.firmware, "20.35.1012");
    EXPECT_STREQ(device.record.board_id, "MT_0000000223");
    EXPECT_EQ(device.module, "mlx5_ib");
    EXPECT_EQ(device.record.flags, 0u);
    ASSERT_EQ(device.ports.size(), 1u);
    const cw_port &record = device.ports[0].record;
    EXPECT_EQ(record.link_layer, CW_LINK_INFINIBAND);
    EXPECT_EQ(record.state, 4u);
    EXPECT_EQ(record.phys_state, 5u);
    EXPECT_EQ(record.lid, 0x1au);
    EXPECT_EQ(record.sm_lid, 1u);
    EXPECT_EQ(record.rate_mbps, 400'000u);
    EXPECT_EQ(record.subnet_prefix, 0xfe80000000000000ULL);
    EXPECT_EQ(record.port_guid, 0x506b4bfffecb7b2aULL);
    EXPECT_EQ(record.carrier, 2u) << "no netdev: not known, never down";
    EXPECT_EQ(record.active_mtu_bytes, 0u);
    ASSERT_EQ(device.ports[0].gids.size(), 1u) << "empty entries are left out";
    EXPECT_EQ(device.ports[0].gids[0].type, CW_GID_IB);
    EXPECT_EQ(device.ports[0].gids[0].gid[8], 0x50);
}

TEST(RdmaDevices, SkipsGidTables) {
    const Tree tree;
    tree.pci_device("mlx5_0", "0000:17:00.0", "mlx5_core");
    tree.port("mlx5_0", 1, "InfiniBand", "400 Gb/sec (4X NDR)");
    const auto whole = scan_rdma_devices(tree.root(), facts_of({{"mlx5_0", 7}}));
    const auto quick = scan_rdma_devices(tree.root(), facts_of({{"mlx5_0", 7}}), GidTables::Skip);
    ASSERT_EQ(quick.size(), 1u);
    ASSERT_EQ(quick[0].ports.size(), 1u);
    EXPECT_EQ(whole[0].ports[0].gids.size(), 1u);
    EXPECT_TRUE(quick[0].ports[0].gids.empty());
    EXPECT_EQ(quick[0].ports[0].record.port_guid, whole[0].ports[0].record.port_guid);
}

TEST(RdmaDevices, RoceFunctionWithTwoPorts) {
    const Tree tree;
    tree.pci_device("mlx5_2", "10000:e1:00.1", "mlx5_core");
    for (const int port : {1, 2})
        tree.port("mlx5_2", port, "Ethernet", "2.5 Gb/sec (1X SDR)");
    tree.netdev("ens1", 3, "9000");
    tree.netdev("ens2", 4, "1500");
    tree.netdev("aens1_0", 5);
    tree.file("/sys/class/net/ens2/dev_port", "1\n");
    tree.file("/sys/class/net/aens1_0/phys_port_name", "pf0vf0\n");
    for (const std::string name : {"ens1", "ens2", "aens1_0"})
        tree.directory("/sys/devices/pci0000:00/10000:e1:00.1/net/" + name);
    tree.file("/sys/class/infiniband/mlx5_2/ports/1/gids/3",
              "0000:0000:0000:0000:0000:ffff:0a00:0001\n");
    tree.file("/sys/class/infiniband/mlx5_2/ports/1/gid_attrs/types/3", "RoCE v2\n");
    tree.file("/sys/class/infiniband/mlx5_2/ports/1/gid_attrs/ndevs/3", "ens1\n");

    const auto devices = scan_rdma_devices(tree.root(), facts_of({{"mlx5_2", 0}}));
    ASSERT_EQ(devices.size(), 1u);
    EXPECT_STREQ(devices[0].record.pci_address, "10000:e1:00.1");
    ASSERT_EQ(devices[0].ports.size(), 2u);
    const cw_port &first = devices[0].ports[0].record;
    const cw_port &second = devices[0].ports[1].record;
    EXPECT_STREQ(first.netdev, "ens1");
    EXPECT_EQ(first.ifindex, 3u);
    EXPECT_EQ(first.active_mtu_bytes, 4096u);
    EXPECT_EQ(first.carrier, 1u);
    EXPECT_EQ(first.rate_mbps, 2500u);
    EXPECT_EQ(first.mac[0], 0x02);
    EXPECT_EQ(first.mac[5], 0x03);
    EXPECT_EQ(first.port_guid, 0u) << "a RoCE port has no GUID of a subnet";
    EXPECT_STREQ(second.netdev, "ens2");
    EXPECT_EQ(second.active_mtu_bytes, 1024u);
    ASSERT_EQ(devices[0].ports[0].gids.size(), 2u);
    EXPECT_EQ(devices[0].ports[0].gids[0].type, CW_GID_ROCE_V1);
    EXPECT_EQ(devices[0].ports[0].gids[1].type, CW_GID_ROCE_V2);
    EXPECT_EQ(devices[0].ports[0].gids[1].gid_index, 3u);
    EXPECT_STREQ(devices[0].ports[0].gids[1].netdev, "ens1");
}

TEST(RdmaDevices, NetlinkNamesTheNetdevOfABond) {
    const Tree tree;
    tree.pci_device("mlx5_bond_0", "0000:17:00.0", "mlx5_core");
    tree.port("mlx5_bond_0", 1, "Ethernet", "200 Gb/sec (4X HDR)");
    tree.netdev("bond0", 9);
    tree.file("/sys/class/net/bond0/bonding/slaves", "ens1 ens2\n");
    tree.netdev("ens1", 3);
    tree.directory("/sys/devices/pci0000:00/0000:17:00.0/net/ens1");
    NetlinkFacts facts = facts_of({{"mlx5_bond_0", 2}});
    facts.ports[{2, 1}].netdev = "bond0";
    const auto devices = scan_rdma_devices(tree.root(), facts);
    ASSERT_EQ(devices.size(), 1u);
    EXPECT_STREQ(devices[0].ports.at(0).record.netdev, "bond0");
    const auto bond = read_netdev(tree.root(), "bond0");
    ASSERT_TRUE(bond);
    EXPECT_EQ(bond->slaves, (std::vector<std::string>{"ens1", "ens2"}));
}

TEST(RdmaDevices, SoftRoce) {
    const Tree tree;
    tree.module("rdma_rxe");
    tree.port("rxe0", 1, "Ethernet", "2.5 Gb/sec (1X SDR)");
    tree.file("/sys/class/infiniband/rxe0/parent", "eth0\n");
    tree.file("/sys/class/infiniband/rxe0/node_guid", "5054:00ff:fe00:0001\n");
    tree.netdev("eth0", 2);
    tree.file("/sys/class/net/eth0/carrier", "0\n");
    const auto devices = scan_rdma_devices(tree.root(), {});
    ASSERT_EQ(devices.size(), 1u);
    EXPECT_FALSE(devices[0].indexed);
    EXPECT_EQ(devices[0].record.dev_index, first_unknown_index);
    EXPECT_EQ(devices[0].record.flags, CW_DEVICE_SOFTWARE);
    EXPECT_STREQ(devices[0].record.driver, "rdma_rxe");
    EXPECT_STREQ(devices[0].record.pci_address, "");
    EXPECT_EQ(devices[0].record.numa_node, -1);
    EXPECT_STREQ(devices[0].ports.at(0).record.netdev, "eth0");
    EXPECT_EQ(devices[0].ports.at(0).record.carrier, 0u);
    EXPECT_EQ(devices[0].ports.at(0).record.active_mtu_bytes, 1024u);
}

TEST(RdmaDevices, GarbageAndVanishedFilesAreNotKnown) {
    const Tree tree;
    tree.pci_device("mlx5_0", "not-an-address", "mlx5_core");
    tree.file("/sys/class/infiniband/mlx5_0/node_guid", "zzzz:4b03:00cb:7b2a\n");
    tree.directory("/sys/class/infiniband/mlx5_0/ports/1");
    tree.directory("/sys/class/infiniband/mlx5_0/ports/x");
    tree.file("/sys/class/infiniband/mlx5_0/ports/1/rate", std::string(9000, '9'));
    tree.file("/sys/class/infiniband/mlx5_0/ports/1/state", "\xff\xfe: \n");
    tree.file("/sys/class/infiniband/mlx5_0/ports/1/link_layer", "Token Ring\n");
    tree.file("/sys/class/infiniband/mlx5_0/ports/1/gids/0", "fe80:0:0:0:0:0:0:1\n");
    tree.file("/sys/class/infiniband/mlx5_0/ports/1/gids/99999999", "");
    const auto devices = scan_rdma_devices(tree.root(), {});
    ASSERT_EQ(devices.size(), 1u);
    EXPECT_STREQ(devices[0].record.pci_address, "");
    EXPECT_EQ(devices[0].record.node_guid, 0u);
    ASSERT_EQ(devices[0].ports.size(), 1u);
    const cw_port &port = devices[0].ports[0].record;
    EXPECT_EQ(port.rate_mbps, 0u);
    EXPECT_EQ(port.state, 0u);
    EXPECT_EQ(port.link_layer, CW_LINK_UNKNOWN);
    EXPECT_TRUE(devices[0].ports[0].gids.empty());
}

TEST(RdmaDevices, NoRdmaSubsystem) {
    const Tree tree;
    EXPECT_TRUE(scan_rdma_devices(tree.root(), {}).empty());
}

TEST(RdmaTexts, Rates) {
    EXPECT_EQ(parse_rate_mbps("100 Gb/sec (4X EDR)"), 100'000u);
    EXPECT_EQ(parse_rate_mbps("2.5 Gb/sec (1X SDR)"), 2'500u);
    EXPECT_EQ(parse_rate_mbps("-1 Gb/sec"), 0u);
    EXPECT_EQ(parse_rate_mbps("2.50 Gb/sec"), 0u);
    EXPECT_EQ(parse_rate_mbps(""), 0u);
}

TEST(RdmaTexts, MtuThatFits) {
    EXPECT_EQ(roce_mtu_bytes(1500, true), 1024u);
    EXPECT_EQ(roce_mtu_bytes(4176, true), 4096u);
    EXPECT_EQ(roce_mtu_bytes(4176, false), 2048u);
    EXPECT_EQ(roce_mtu_bytes(4192, false), 4096u);
    EXPECT_EQ(roce_mtu_bytes(100, false), 0u);
}

TEST(NetDevs, PciAddresses) {
    EXPECT_EQ(pci_address_or_empty("0000:17:00.0"), "0000:17:00.0");
    EXPECT_EQ(pci_address_or_empty("10000:e1:00.1"), "10000:e1:00.1");
    EXPECT_EQ(pci_address_or_empty("virtio0"), "");
    EXPECT_EQ(pci_address_or_empty("0000:17:00:0"), "");
}

TEST(NetDevs, SwitchedOffIsDownNotUnknown) {
    const Tree tree;
    tree.netdev("eth0", 2);
    tree.remove("/sys/class/net/eth0/carrier");
    tree.file("/sys/class/net/eth0/flags", "0x1002\n");
    EXPECT_EQ(read_netdev(tree.root(), "eth0")->carrier, 0u);
    tree.file("/sys/class/net/eth0/flags", "0x1003\n");
    EXPECT_EQ(read_netdev(tree.root(), "eth0")->carrier, 2u);
    EXPECT_FALSE(read_netdev(tree.root(), "eth1"));
}

class Modules : public testing::Test {
protected:
    void SetUp() override {
        tree_.file("/proc/sys/kernel/osrelease", "6.1.0-test\n");
        tree_.file("/lib/modules/6.1.0-test/modules.dep",
                   "kernel/drivers/infiniband/core/ib_core.ko.xz: kernel/lib/x.ko\n"
                   "updates/dkms/mlx5_ib.ko: kernel/drivers/infiniband/core/ib_core.ko.xz\n"
                   "kernel/net/iw-cm.ko:\n");
        tree_.file("/lib/modules/6.1.0-test/modules.builtin",
                   "kernel/drivers/infiniband/hw/efa/efa.ko\n");
    }
    [[nodiscard]] ModuleOrigin origin(std::string_view module) const {
        return module_origin(tree_.root(), module);
    }
    Tree tree_;
};

TEST_F(Modules, KernelsOwn) {
    tree_.module("ib_core");
    EXPECT_TRUE(origin("ib_core").trusted);
    EXPECT_FALSE(origin("ib_core").foreign());
    EXPECT_FALSE(origin("ib_core").btf_present);
    tree_.module("iw_cm");
    EXPECT_EQ(origin("iw_cm").reason, "its file is kernel/net/iw-cm.ko");
}

TEST_F(Modules, Absent) {
    EXPECT_FALSE(origin("ib_uverbs").present);
    EXPECT_FALSE(origin("ib_uverbs").foreign());
    EXPECT_FALSE(origin("").present);
}

TEST_F(Modules, BuiltIn) {
    EXPECT_TRUE(origin("efa").present);
    EXPECT_TRUE(origin("efa").trusted);
}

TEST_F(Modules, OutOfTree) {
    tree_.module("ib_core", "OE");
    EXPECT_TRUE(origin("ib_core").foreign());
    EXPECT_FALSE(origin("ib_core").described());
    EXPECT_NE(origin("ib_core").reason.find("OE"), std::string::npos);
    tree_.file("/sys/kernel/btf/ib_core", "");
    EXPECT_TRUE(origin("ib_core").foreign());
    EXPECT_TRUE(origin("ib_core").described()) << "its own BTF describes it";
}

TEST_F(Modules, UnknownLayoutNamesTheModuleInTheWay) {
    tree_.module("ib_core");
    tree_.module("rdma_rxe", "OE");
    EXPECT_EQ(layout_unknown(tree_.root(), {"ib_core", "mlx5_core"}), "")
        << "absent is not foreign";
    EXPECT_EQ(layout_unknown(tree_.root(), {"ib_core", "rdma_rxe"}),
              "rdma_rxe is out-of-tree (built outside the kernel tree, taint OE) and "
              "has no BTF");
    tree_.file("/sys/kernel/btf/rdma_rxe", "");
    tree_.file("/sys/kernel/btf/ib_core", "");
    EXPECT_EQ(layout_unknown(tree_.root(), {"ib_core", "rdma_rxe"}), "");
}

TEST_F(Modules, ReplacedFile) {
    tree_.module("mlx5_ib");
    EXPECT_TRUE(origin("mlx5_ib").foreign());
    EXPECT_NE(origin("mlx5_ib").reason.find("updates/dkms"), std::string::npos);
}

TEST_F(Modules, OfedCompatibility) {
    tree_.module("ib_core");
    tree_.module("virtio_net");
    tree_.directory("/sys/module/mlx_compat");
    EXPECT_TRUE(origin("ib_core").foreign());
    EXPECT_TRUE(origin("virtio_net").trusted) << "not of the RDMA stack";
    EXPECT_EQ(foreign_rdma_modules(tree_.root()), std::vector<std::string>{"ib_core"});
}

TEST_F(Modules, LacksBtfThatOthersHave) {
    tree_.module("ib_core");
    tree_.file("/sys/kernel/btf/vmlinux", "");
    EXPECT_TRUE(origin("ib_core").trusted) << "a kernel without module BTF";
    tree_.file("/sys/kernel/btf/ib_uverbs", "");
    EXPECT_TRUE(origin("ib_core").foreign());
}

TEST_F(Modules, UnsignedAmongSigned) {
    tree_.module("ib_core", "E");
    EXPECT_TRUE(origin("ib_core").trusted) << "everything is unsigned";
    tree_.module("virtio_net");
    EXPECT_TRUE(origin("ib_core").foreign());
}

} // namespace
} // namespace collwire::inventory
