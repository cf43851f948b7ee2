// SPDX-License-Identifier: Apache-2.0
#include "userspace/inventory/netdevs.h"

#include <algorithm>

#include <net/if.h>

#include "userspace/inventory/files.h"

namespace collwire::inventory {
namespace {

std::uint32_t carrier_of(const std::string &device) {
    if (const auto carrier = read_number(device + "/carrier"))
        return *carrier != 0 ? 1 : 0;
    // The carrier file is unreadable (EINVAL) while the device is switched off.
    const auto flags = read_number(device + "/flags");
    return flags && (*flags & IFF_UP) == 0 ? 0 : 2;
}

} // namespace

std::string pci_address_or_empty(const std::string &text) {
    // domain:bus:device.function; the domain has more than four digits after some bridges (VMD)
    const std::size_t length = text.size();
    if (length < 12 || length > 15)
        return {};
    for (std::size_t i = 0; i < length; ++i) {
        const std::size_t from_end = length - i;
        const bool colon = from_end == 8 || from_end == 5;
        const bool dot = from_end == 2;
        const bool digit = std::string_view("0123456789abcdef").find(text[i]) != std::string::npos;
        if (colon ? text[i] != ':' : dot ? text[i] != '.' : !digit)
            return {};
    }
    return text;
}

std::optional<NetDev> read_netdev(const std::string &root, const std::string &name) {
    const std::string device = root + "/sys/class/net/" + name;
    const auto ifindex = read_number(device + "/ifindex");
    if (!ifindex)
        return std::nullopt;
    NetDev netdev;
    netdev.name = name;
    netdev.ifindex = static_cast<std::uint32_t>(*ifindex);
    netdev.type = static_cast<std::uint32_t>(read_number(device + "/type").value_or(0));
    netdev.mtu_bytes = read_number(device + "/mtu").value_or(0);
    netdev.dev_port = static_cast<std::uint32_t>(read_number(device + "/dev_port").value_or(0));
    netdev.carrier = carrier_of(device);
    netdev.speed_mbps = read_number(device + "/speed"); // -1 while down: no number
    netdev.mac = read_line(device + "/address").value_or("");
    netdev.pci_address = pci_address_or_empty(link_name(device + "/device"));
    netdev.driver = link_name(device + "/device/driver");
    netdev.master = link_name(device + "/master");
    const std::string slaves = read_line(device + "/bonding/slaves").value_or("");
    for (const std::string_view slave : split(slaves, ' ')) {
        if (!slave.empty())
            netdev.slaves.emplace_back(slave);
    }
    return netdev;
}

std::vector<NetDev> scan_netdevs(const std::string &root) {
    std::vector<NetDev> netdevs;
    for (const std::string &name : list_directory(root + "/sys/class/net")) {
        if (auto netdev = read_netdev(root, name))
            netdevs.push_back(std::move(*netdev));
    }
    return netdevs;
}

} // namespace collwire::inventory
