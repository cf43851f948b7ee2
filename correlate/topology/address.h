// SPDX-License-Identifier: Apache-2.0
// The addresses that identify an RDMA port, in the spellings that tools and kernels print.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace collwire::topology {

using Address = std::array<std::uint8_t, 16>; // network byte order; IPv4 as ::ffff:a.b.c.d

// IPv4 or IPv6 text. IPv4 becomes its mapped form, which is also the RoCE v2 GID of that address.
std::optional<Address> parse_ip(std::string_view text);

// A GID as the kernel prints it (eight groups of four hex digits) or any IPv6 or IPv4-mapped text.
std::optional<Address> parse_gid(std::string_view text);

// "0x1122334455667788", the same without 0x, or "1122:3344:5566:7788" (sysfs).
std::optional<std::uint64_t> parse_guid(std::string_view text);

// "aa:bb:cc:dd:ee:ff", with dashes, or twelve hex digits; the first byte is the most significant of
// 48 bits.
std::optional<std::uint64_t> parse_mac(std::string_view text);

bool is_ipv4_mapped(const Address &address);
std::uint64_t upper_half(const Address &address); // IB: the subnet prefix
std::uint64_t lower_half(const Address &address); // IB: the port GUID

// The MAC inside an EUI-64 interface identifier (RFC 4291 appendix A): what a RoCE default GID
// carries.
std::optional<std::uint64_t> mac_of_eui64(std::uint64_t interface_id);

std::string format_guid(std::uint64_t guid); // 0x and 16 digits
std::string format_mac(std::uint64_t mac);
std::string format_ip(const Address &address); // IPv4-mapped as IPv4

} // namespace collwire::topology
