// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <map>

#include "collwire/node_records.h"
#include "collwire/record_kinds.h"
#include "tests/unit/inventory_tree.h"
#include "userspace/inventory/pci_functions.h"

namespace collwire::inventory {
namespace {

using test::Tree;

std::map<std::string, cw_pci_function> functions_of(const Tree &tree) {
    std::map<std::string, cw_pci_function> by_address;
    for (const auto &function : read_pci_functions(tree.root(), scan_rdma_devices(tree.root(), {})))
        EXPECT_TRUE(by_address.emplace(function.pci_address, function).second);
    return by_address;
}

TEST(PciFunctions, GpusAndAccelerators) {
    const Tree tree;
    tree.pci_function("pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0", "0x030200",
                      "1");
    tree.pci_function("pci0000:00/0000:00:02.0", "0x030000", "-1", "0x1a03");
    tree.pci_function("pci0000:40/0000:40:01.0/0000:41:00.0", "0x120000", "0", "0x1002");
    tree.pci_function("pci0000:00/0000:00:03.0", "0x020000");
    tree.pci_function("pci0000:00/0000:00:04.0", "0x040300");
    const auto functions = functions_of(tree);
    ASSERT_EQ(functions.size(), 3u) << "no network controller without RDMA, no sound";
    const cw_pci_function &gpu = functions.at("0000:03:00.0");
    EXPECT_EQ(gpu.header.kind, CW_KIND_PCI_FUNCTION);
    EXPECT_EQ(gpu.header.length_bytes, sizeof(gpu));
    EXPECT_EQ(gpu.vendor, 0x10deu);
    EXPECT_EQ(gpu.class_code, 0x030200u);
    EXPECT_EQ(gpu.numa_node, 1);
    EXPECT_STREQ(gpu.path, "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0");
    EXPECT_EQ(functions.at("0000:00:02.0").numa_node, -1);
    EXPECT_STREQ(functions.at("0000:00:02.0").path, "pci0000:00/0000:00:02.0");
    EXPECT_EQ(functions.at("0000:41:00.0").vendor, 0x1002u);
}

TEST(PciFunctions, OfRdmaDevicesOnce) {
    const Tree tree;
    tree.pci_device("mlx5_0", "0000:17:00.0", "mlx5_core");
    tree.link("/sys/class/infiniband/mlx5_1/device", "../../../devices/pci0000:00/0000:17:00.0");
    tree.pci_device("mlx5_2", "0000:18:00.0", "mlx5_core");
    tree.pci_function("pci0000:00/0000:17:00.0", "0x020700", "1", "0x15b3");
    tree.port("rxe0", 1, "Ethernet", "2.5 Gb/sec (1X SDR)");
    tree.file("/sys/class/infiniband/rxe0/parent", "eth0\n");
    const auto functions = functions_of(tree);
    ASSERT_EQ(functions.size(), 1u) << "software has none, and what /sys/bus does not have neither";
    EXPECT_EQ(functions.at("0000:17:00.0").class_code, 0x020700u);
    EXPECT_STREQ(functions.at("0000:17:00.0").path, "pci0000:00/0000:17:00.0");
}

TEST(PciFunctions, APathThatIsTooLongIsLeftOutWhole) {
    const Tree tree;
    // 10 for the bridge and 13 for each part: 257 do not fit, 244 do.
    std::string path = "pci0000:00";
    for (int i = 0; i < 18; ++i)
        path += "/0000:00:01.0";
    tree.pci_function(path + "/0000:01:00.0", "0x030200", "1");
    EXPECT_STREQ(functions_of(tree).at("0000:01:00.0").path, "");
    EXPECT_EQ(functions_of(tree).at("0000:01:00.0").numa_node, 1);
    tree.remove("/sys/bus");
    tree.pci_function(path, "0x030200");
    EXPECT_EQ(functions_of(tree).at("0000:00:01.0").path, path);
}

TEST(PciFunctions, GarbageIsNotKnown) {
    const Tree tree;
    tree.link("/sys/bus/pci/devices/0000:05:00.0", "../../../devices/platform/0000:05:00.0");
    tree.file("/sys/devices/platform/0000:05:00.0/class", "0x030200\n");
    tree.file("/sys/bus/pci/devices/0000:06:00.0/class", "0x1030200\n");
    tree.file("/sys/bus/pci/devices/no-address/class", "0x030200\n");
    tree.directory("/sys/bus/pci/devices/0000:07:00.0");
    const auto functions = functions_of(tree);
    ASSERT_EQ(functions.size(), 1u);
    const cw_pci_function &function = functions.at("0000:05:00.0");
    EXPECT_STREQ(function.path, "");
    EXPECT_EQ(function.vendor, 0u);
    EXPECT_EQ(function.numa_node, -1);
}

TEST(PciFunctions, NoPci) {
    const Tree tree;
    EXPECT_TRUE(functions_of(tree).empty());
}

TEST(PciTexts, Paths) {
    EXPECT_EQ(pci_path("../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0"),
              "pci0000:00/0000:00:01.0/0000:01:00.0");
    // Below a bridge that makes a domain of its own (VMD), and below a firmware's device.
    EXPECT_EQ(pci_path("../../../devices/pci0000:97/0000:97:00.5/pci10000:00/10000:00:02.0"),
              "pci10000:00/10000:00:02.0");
    EXPECT_EQ(pci_path("../../../devices/LNXSYSTM:00/VMBUS:00/pci0001:00/0001:00:00.0"),
              "pci0001:00/0001:00:00.0");
    for (const std::string_view text :
         {"", "/", "pci0000:00", "../pci0000:00", "0000:01:00.0", "../0000:01:00.0",
          "../pci0000:00/virtio0/0000:01:00.0", "../pci0000/0000:01:00.0", "../pci/0000:01:00.0",
          "../pci0000:00/0000:01:00.0/", "../pci0000:00//0000:01:00.0", "../pcix:y/0000:01:00.0"})
        EXPECT_EQ(pci_path(text), "") << text;
}

} // namespace
} // namespace collwire::inventory
