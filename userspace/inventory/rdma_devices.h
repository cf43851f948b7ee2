// SPDX-License-Identifier: Apache-2.0
// The RDMA devices of a node, their ports and addresses, from /sys/class/infiniband and RDMA
// netlink. `root` goes before every path ("" is the machine itself).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collwire/node_records.h"
#include "userspace/netlink/attributes.h"

namespace collwire::inventory {

struct RdmaPort {
    cw_port record{};
    std::vector<cw_gid> gids; // those in use, by index
};

struct RdmaDevice {
    cw_device record{};
    std::string name;
    std::string module;   // that drives it, empty if sysfs does not show it
    bool indexed = false; // record.dev_index is the kernel's; false: not in netlink
    std::vector<RdmaPort> ports;
};

// The facts that sysfs lacks. Ports are keyed by (device index, port).
struct NetlinkFacts {
    std::map<std::string, netlink::NetlinkDevice> devices;
    std::map<std::pair<std::uint32_t, std::uint32_t>, netlink::NetlinkPort> ports;
};

// Asks the kernel; empty without an RDMA subsystem. Never makes the kernel load it.
NetlinkFacts read_netlink_facts();

// Names of the devices; cheap, to notice added and removed ones.
std::vector<std::string> rdma_device_names(const std::string &root);

// A device that netlink does not list (another network namespace, netlink refused) gets an index
// from here on, by its place in the list, so that its records still belong together.
inline constexpr std::uint32_t first_unknown_index = 0xffff0000;

// Reading a GID table is three files an entry: some ms for a device with 256 entries.
enum class GidTables : std::uint8_t { Read, Skip };

// Everything. Record times are 0.
std::vector<RdmaDevice> scan_rdma_devices(const std::string &root, const NetlinkFacts &facts,
                                          GidTables gids = GidTables::Read);
// One port without its GID table. device: name, index and flags are used.
cw_port read_port(const std::string &root, const RdmaDevice &device, std::uint32_t port,
                  const NetlinkFacts &facts);

// Parsers of single sysfs texts; 0 for an unknown text.
std::uint64_t parse_rate_mbps(std::string_view text);           // "100 Gb/sec (4X EDR)"
std::uint32_t parse_state(std::string_view text);               // "4: ACTIVE"
std::uint64_t parse_guid(std::string_view text);                // "506b:4b03:00cb:7b2a"
bool parse_gid(std::string_view text, std::uint8_t (&gid)[16]); // eight groups of four digits
// enum cw_gid_type; the kernel's text "IB/RoCE v1" is distinguished by the port's cw_link_layer.
std::uint32_t parse_gid_type(std::string_view text, std::uint32_t link_layer);
// The module with the RDMA part of a driver ("mlx5_core" -> "mlx5_ib"); the driver itself if it
// has both, or is not known.
std::string provider_module(std::string_view driver);

// The RDMA MTU that fits into an Ethernet MTU: iboe_get_mtu() of rdma/ib_addr.h (96 bytes of
// headers), rxe_set_mtu() with RXE_MAX_HDR_LENGTH (80 bytes). 0: none fits.
std::uint32_t roce_mtu_bytes(std::uint64_t netdev_mtu_bytes, bool rxe);

} // namespace collwire::inventory
