// SPDX-License-Identifier: Apache-2.0
// Network devices of the caller's network namespace, from /sys/class/net.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace collwire::inventory {

struct NetDev {
    std::string name;
    std::uint32_t ifindex = 0;
    std::uint32_t type = 0;      // ARPHRD_*: 1 Ethernet, 32 InfiniBand, 772 loopback
    std::uint64_t mtu_bytes = 0; // 0: not known
    std::uint32_t dev_port = 0;  // port of a multi-port function, from 0
    std::uint32_t carrier = 2;   // 0 down (or switched off), 1 up, 2 not known
    std::optional<std::uint64_t> speed_mbps;
    std::string mac; // as sysfs prints it
    std::string pci_address;
    std::string driver;
    std::string master;              // bond or bridge above it
    std::vector<std::string> slaves; // of a bond
};

std::vector<NetDev> scan_netdevs(const std::string &root);
// nullopt if there is no such device.
std::optional<NetDev> read_netdev(const std::string &root, const std::string &name);

// "0000:17:00.0" if the text is a PCI address, empty otherwise.
std::string pci_address_or_empty(const std::string &text);

} // namespace collwire::inventory
