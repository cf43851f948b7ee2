// SPDX-License-Identifier: Apache-2.0
#include "userspace/inventory/rdma_devices.h"

#include <algorithm>
#include <array>
#include <optional>

#include <rdma/ib_user_ioctl_verbs.h>

#include "base/set_text.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "userspace/inventory/files.h"
#include "userspace/inventory/module_origin.h"
#include "userspace/inventory/netdevs.h"
#include "userspace/netlink/rdma_netlink.h"

namespace collwire::inventory {
namespace {

// The kernel's own tables end at 16 bits (struct ib_port_attr.gid_tbl_len is an int, hardware has
// 256 at most); a tree that claims more is garbage.
constexpr std::uint64_t max_gid_index = 65535;
constexpr std::uint64_t max_ports = 255; // of a CA: port numbers are 8 bits on the wire

std::string device_directory(const std::string &root, const std::string &name) {
    return root + "/sys/class/infiniband/" + name;
}

std::vector<std::uint32_t> numbers_in(const std::string &directory, std::uint64_t limit) {
    std::vector<std::uint32_t> numbers;
    for (const std::string &name : list_directory(directory)) {
        const auto number = parse_number(name);
        if (number && *number <= limit)
            numbers.push_back(static_cast<std::uint32_t>(*number));
    }
    std::sort(numbers.begin(), numbers.end());
    return numbers;
}

bool is_rxe(const std::string &directory, const std::optional<std::uint32_t> &driver_id) {
    // rdma_rxe alone has this attribute; it names the netdev under it.
    return driver_id ? *driver_id == RDMA_DRIVER_RXE : exists(directory + "/parent");
}

bool is_siw(const std::string &name, const std::optional<std::uint32_t> &driver_id) {
    return driver_id ? *driver_id == RDMA_DRIVER_SIW : name.starts_with("siw");
}

std::string netdev_of_pci(const std::string &root, const std::string &directory, std::uint32_t port,
                          std::size_t n_ports) {
    std::vector<std::string> candidates;
    for (const std::string &name : list_directory(directory + "/device/net")) {
        // Representors of virtual functions ("pf0vf1") share the function with its own netdev.
        const std::string label =
            read_line(concatenated(root, "/sys/class/net/", name, "/phys_port_name")).value_or("");
        if (!label.starts_with("pf"))
            candidates.push_back(name);
    }
    for (const std::string &name : candidates) {
        const auto dev_port = read_number(concatenated(root, "/sys/class/net/", name, "/dev_port"));
        if (dev_port && *dev_port + 1 == port)
            return name;
    }
    return candidates.size() == 1 && n_ports == 1 ? candidates.front() : std::string();
}

std::string netdev_of_port(const std::string &root, const RdmaDevice &device, std::uint32_t port,
                           const NetlinkFacts &facts) {
    const std::string directory = device_directory(root, device.name);
    if (const auto known = facts.ports.find({device.record.dev_index, port});
        device.indexed && known != facts.ports.end() && !known->second.netdev.empty())
        return known->second.netdev;
    const std::string attributes = directory + "/ports/" + std::to_string(port) + "/gid_attrs";
    if (const auto netdev = read_line(attributes + "/ndevs/0"); netdev && !netdev->empty())
        return *netdev;
    if (const auto parent = read_line(directory + "/parent"); parent && !parent->empty())
        return *parent;
    return netdev_of_pci(root, directory, port, device.record.n_ports);
}

std::uint32_t parse_link_layer(std::string_view text) {
    if (text == "InfiniBand")
        return CW_LINK_INFINIBAND;
    return text == "Ethernet" ? CW_LINK_ETHERNET : CW_LINK_UNKNOWN;
}

void parse_mac(std::string_view text, std::uint8_t (&mac)[8]) {
    const auto parts = split(text, ':');
    if (parts.size() != 6)
        return;
    std::array<std::uint8_t, 6> bytes{};
    for (std::size_t i = 0; i < parts.size(); ++i) {
        const auto byte = parse_number(parts[i], 16);
        if (!byte || *byte > 0xff)
            return;
        bytes[i] = static_cast<std::uint8_t>(*byte);
    }
    std::copy(bytes.begin(), bytes.end(), mac);
}

std::uint64_t big_endian_64(const std::uint8_t *bytes) {
    std::uint64_t value = 0;
    for (int i = 0; i < 8; ++i)
        value = value << 8 | bytes[i];
    return value;
}

bool in_use(const std::uint8_t (&gid)[16]) {
    // Unused entries are all zero, or a prefix without an interface id.
    return std::any_of(gid + 8, gid + 16, [](std::uint8_t byte) { return byte != 0; });
}

std::vector<cw_gid> read_gids(const std::string &root, const RdmaDevice &device,
                              const cw_port &port) {
    std::vector<cw_gid> gids;
    const std::string directory =
        device_directory(root, device.name) + "/ports/" + std::to_string(port.port);
    for (const std::uint32_t index : numbers_in(directory + "/gids", max_gid_index)) {
        const std::string number = std::to_string(index);
        const auto text = read_line(concatenated(directory, "/gids/", number));
        cw_gid gid{};
        if (!text || !parse_gid(*text, gid.gid) || !in_use(gid.gid))
            continue;
        gid.header.length_bytes = sizeof(gid);
        gid.header.kind = CW_KIND_GID;
        gid.header.cpu = CW_CPU_USERSPACE;
        gid.dev_index = port.dev_index;
        gid.port = port.port;
        gid.gid_index = index;
        gid.type = parse_gid_type(
            read_line(concatenated(directory, "/gid_attrs/types/", number)).value_or(""),
            port.link_layer);
        set_text(gid.netdev,
                 read_line(concatenated(directory, "/gid_attrs/ndevs/", number)).value_or(""));
        gids.push_back(gid);
    }
    return gids;
}

void read_device(const std::string &root, const NetlinkFacts &facts, RdmaDevice &device) {
    const std::string directory = device_directory(root, device.name);
    std::optional<std::uint32_t> driver_id;
    cw_device &record = device.record;
    record.header = {sizeof(record), CW_KIND_DEVICE, CW_CPU_USERSPACE, 0};
    set_text(record.name, device.name);
    if (const auto known = facts.devices.find(device.name); known != facts.devices.end()) {
        device.indexed = true;
        record.dev_index = known->second.dev_index;
        driver_id = known->second.driver_id;
    }
    record.node_guid = parse_guid(read_line(directory + "/node_guid").value_or(""));
    set_text(record.firmware, read_line(directory + "/fw_ver").value_or(""));
    set_text(record.board_id, read_line(directory + "/board_id").value_or(""));
    record.numa_node = -1;
    if (is_rxe(directory, driver_id) || is_siw(device.name, driver_id)) {
        // The parent of such a device is that of its netdev on some kernels; it is not its own.
        record.flags |= CW_DEVICE_SOFTWARE;
        device.module = is_rxe(directory, driver_id) ? "rdma_rxe" : "siw";
        set_text(record.driver, device.module);
    } else {
        record.numa_node = read_numa_node(directory + "/device");
        const std::string driver = link_name(directory + "/device/driver");
        set_text(record.driver, driver);
        set_text(record.pci_address, pci_address_or_empty(link_name(directory + "/device")));
        device.module = provider_module(driver);
        if (module_origin(root, driver).foreign())
            record.flags |= CW_DEVICE_FOREIGN_MODULE;
    }
    if (module_origin(root, device.module).foreign())
        record.flags |= CW_DEVICE_FOREIGN_MODULE;
}

} // namespace

NetlinkFacts read_netlink_facts() {
    NetlinkFacts facts;
    // A netlink socket of this family would make the kernel load the RDMA subsystem.
    if (!exists("/sys/class/infiniband"))
        return facts;
    auto netlink = netlink::RdmaNetlink::open();
    if (!netlink)
        return facts;
    auto devices = netlink->devices();
    if (!devices)
        return facts;
    for (netlink::NetlinkDevice &device : *devices) {
        if (auto ports = netlink->ports(device.dev_index)) {
            for (netlink::NetlinkPort &port : *ports)
                facts.ports[{port.dev_index, port.port}] = std::move(port);
        }
        facts.devices[device.name] = std::move(device);
    }
    return facts;
}

std::vector<std::string> rdma_device_names(const std::string &root) {
    return list_directory(root + "/sys/class/infiniband");
}

cw_port read_port(const std::string &root, const RdmaDevice &device, std::uint32_t port,
                  const NetlinkFacts &facts) {
    const std::string directory =
        device_directory(root, device.name) + "/ports/" + std::to_string(port);
    cw_port record{};
    record.header = {sizeof(record), CW_KIND_PORT, CW_CPU_USERSPACE, 0};
    record.dev_index = device.record.dev_index;
    record.port = port;
    record.link_layer = parse_link_layer(read_line(directory + "/link_layer").value_or(""));
    record.state = parse_state(read_line(directory + "/state").value_or(""));
    record.phys_state = parse_state(read_line(directory + "/phys_state").value_or(""));
    record.lid = static_cast<std::uint32_t>(read_number(directory + "/lid").value_or(0));
    record.sm_lid = static_cast<std::uint32_t>(read_number(directory + "/sm_lid").value_or(0));
    record.rate_mbps = parse_rate_mbps(read_line(directory + "/rate").value_or(""));
    record.carrier = 2;
    if (std::uint8_t gid[16]; record.link_layer == CW_LINK_INFINIBAND &&
                              parse_gid(read_line(directory + "/gids/0").value_or(""), gid)) {
        record.subnet_prefix = big_endian_64(gid);
        record.port_guid = big_endian_64(gid + 8);
    }
    const auto netdev = read_netdev(root, netdev_of_port(root, device, port, facts));
    if (netdev) {
        record.ifindex = netdev->ifindex;
        record.carrier = netdev->carrier;
        set_text(record.netdev, netdev->name);
        parse_mac(netdev->mac, record.mac);
        if (record.link_layer == CW_LINK_ETHERNET)
            record.active_mtu_bytes =
                roce_mtu_bytes(netdev->mtu_bytes, device.module == "rdma_rxe");
    }
    return record;
}

std::vector<RdmaDevice> scan_rdma_devices(const std::string &root, const NetlinkFacts &facts,
                                          GidTables gids) {
    std::vector<RdmaDevice> devices;
    for (const std::string &name : rdma_device_names(root)) {
        RdmaDevice device;
        device.name = name;
        device.record.dev_index = first_unknown_index + static_cast<std::uint32_t>(devices.size());
        read_device(root, facts, device);
        const auto ports = numbers_in(device_directory(root, name) + "/ports", max_ports);
        device.record.n_ports = static_cast<std::uint32_t>(ports.size());
        for (const std::uint32_t port : ports) {
            RdmaPort entry{read_port(root, device, port, facts), {}};
            if (gids == GidTables::Read)
                entry.gids = read_gids(root, device, entry.record);
            device.ports.push_back(std::move(entry));
        }
        devices.push_back(std::move(device));
    }
    return devices;
}

std::uint64_t parse_rate_mbps(std::string_view text) {
    // "100 Gb/sec (4X EDR)", "2.5 Gb/sec (1X SDR)": at most one decimal (ib_port rate_show)
    const std::size_t unit = text.find(" Gb/sec");
    if (unit == std::string_view::npos)
        return 0;
    text = text.substr(0, unit);
    const std::size_t point = text.find('.');
    const auto whole = parse_number(text.substr(0, point));
    std::optional<std::uint64_t> tenths = 0;
    if (point != std::string_view::npos)
        tenths = parse_number(text.substr(point + 1));
    if (!whole || !tenths || *tenths > 9 || *whole > 1'000'000)
        return 0;
    return *whole * 1000 + *tenths * 100;
}

std::uint32_t parse_state(std::string_view text) {
    const auto number = parse_number(text.substr(0, text.find(':')));
    return number && *number <= 255 ? static_cast<std::uint32_t>(*number) : 0;
}

std::uint64_t parse_guid(std::string_view text) {
    const auto groups = split(text, ':');
    if (groups.size() != 4)
        return 0;
    std::uint64_t guid = 0;
    for (const std::string_view group : groups) {
        const auto part = parse_number(group, 16);
        if (!part || group.size() != 4)
            return 0;
        guid = guid << 16 | *part;
    }
    return guid;
}

bool parse_gid(std::string_view text, std::uint8_t (&gid)[16]) {
    const auto groups = split(text, ':');
    if (groups.size() != 8)
        return false;
    std::array<std::uint8_t, 16> bytes{};
    for (std::size_t i = 0; i < groups.size(); ++i) {
        const auto part = parse_number(groups[i], 16);
        if (!part || groups[i].size() != 4)
            return false;
        bytes[2 * i] = static_cast<std::uint8_t>(*part >> 8);
        bytes[2 * i + 1] = static_cast<std::uint8_t>(*part & 0xff);
    }
    std::copy(bytes.begin(), bytes.end(), gid);
    return true;
}

std::uint32_t parse_gid_type(std::string_view text, std::uint32_t link_layer) {
    if (text == "RoCE v2")
        return CW_GID_ROCE_V2;
    if (text == "IB/RoCE v1" && link_layer == CW_LINK_ETHERNET)
        return CW_GID_ROCE_V1;
    return link_layer == CW_LINK_INFINIBAND ? CW_GID_IB : CW_GID_UNKNOWN;
}

std::string provider_module(std::string_view driver) {
    struct Pair {
        std::string_view driver;
        std::string_view provider;
    };
    constexpr std::array<Pair, 7> pairs = {{{"mlx5_core", "mlx5_ib"},
                                            {"mlx4_core", "mlx4_ib"},
                                            {"bnxt_en", "bnxt_re"},
                                            {"ice", "irdma"},
                                            {"i40e", "irdma"},
                                            {"cxgb4", "iw_cxgb4"},
                                            {"qede", "qedr"}}};
    for (const Pair &pair : pairs) {
        if (pair.driver == driver)
            return std::string(pair.provider);
    }
    return std::string(driver);
}

std::uint32_t roce_mtu_bytes(std::uint64_t netdev_mtu_bytes, bool rxe) {
    const std::uint64_t headers = rxe ? 80 : 96;
    for (const std::uint32_t mtu : {4096U, 2048U, 1024U, 512U, 256U}) {
        if (netdev_mtu_bytes >= headers + mtu)
            return mtu;
    }
    return 0;
}

} // namespace collwire::inventory
