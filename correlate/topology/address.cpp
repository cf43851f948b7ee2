// SPDX-License-Identifier: Apache-2.0
#include "correlate/topology/address.h"

#include <algorithm>
#include <arpa/inet.h>
#include <fmt/format.h>

namespace collwire::topology {

namespace {

constexpr std::size_t IP_TEXT_MAX = 45;

int hex_value(char digit) {
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    if (digit >= 'a' && digit <= 'f')
        return digit - 'a' + 10;
    if (digit >= 'A' && digit <= 'F')
        return digit - 'A' + 10;
    return -1;
}

// `digits` hex digits, with `separator` (if not 0) after every `group` of them.
std::optional<std::uint64_t> parse_hex(std::string_view text, std::size_t digits, std::size_t group,
                                       char separator) {
    std::uint64_t value = 0;
    std::size_t seen = 0;
    for (std::size_t i = 0; i < text.size(); i++) {
        if (separator != 0 && seen > 0 && seen < digits && seen % group == 0) {
            if (text[i] != separator)
                return std::nullopt;
            if (++i == text.size())
                return std::nullopt;
        }
        const int digit = hex_value(text[i]);
        if (digit < 0 || seen == digits)
            return std::nullopt;
        value = value << 4 | static_cast<unsigned>(digit);
        seen++;
    }
    if (seen != digits)
        return std::nullopt;
    return value;
}

std::uint64_t half(const Address &address, std::size_t from) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < 8; i++)
        value = value << 8 | address[from + i];
    return value;
}

} // namespace

std::optional<Address> parse_ip(std::string_view text) {
    if (text.empty() || text.size() > IP_TEXT_MAX || text.find('\0') != std::string_view::npos)
        return std::nullopt;
    const std::string terminated(text);
    Address address{};
    in_addr v4{};
    if (inet_pton(AF_INET, terminated.c_str(), &v4) == 1) {
        address[10] = 0xff;
        address[11] = 0xff;
        const auto host = ntohl(v4.s_addr);
        for (std::size_t i = 0; i < 4; i++)
            address[12 + i] = static_cast<std::uint8_t>(host >> (24 - 8 * i) & 0xff);
        return address;
    }
    in6_addr v6{};
    if (inet_pton(AF_INET6, terminated.c_str(), &v6) != 1)
        return std::nullopt;
    std::copy(std::begin(v6.s6_addr), std::end(v6.s6_addr), address.begin());
    return address;
}

std::optional<Address> parse_gid(std::string_view text) {
    return parse_ip(text);
}

std::optional<std::uint64_t> parse_guid(std::string_view text) {
    if (text.starts_with("0x") || text.starts_with("0X")) {
        text.remove_prefix(2);
        // Tools that print with %#lx drop leading zeros.
        if (text.empty() || text.size() > 16)
            return std::nullopt;
        return parse_hex(text, text.size(), 1, 0);
    }
    if (text.find(':') != std::string_view::npos)
        return parse_hex(text, 16, 4, ':');
    return parse_hex(text, 16, 1, 0);
}

std::optional<std::uint64_t> parse_mac(std::string_view text) {
    if (text.size() == 12)
        return parse_hex(text, 12, 1, 0);
    return parse_hex(text, 12, 2, text.size() > 2 && text[2] == '-' ? '-' : ':');
}

bool is_ipv4_mapped(const Address &address) {
    return std::all_of(address.begin(), address.begin() + 10,
                       [](auto byte) { return byte == 0; }) &&
           address[10] == 0xff && address[11] == 0xff;
}

std::uint64_t upper_half(const Address &address) {
    return half(address, 0);
}
std::uint64_t lower_half(const Address &address) {
    return half(address, 8);
}

std::optional<std::uint64_t> mac_of_eui64(std::uint64_t interface_id) {
    if ((interface_id >> 24 & 0xffff) != 0xfffe)
        return std::nullopt;
    const std::uint64_t mac = (interface_id >> 40) << 24 | (interface_id & 0xffffff);
    return mac ^ 0x020000000000; // the universal/local bit is inverted in the identifier
}

std::string format_guid(std::uint64_t guid) {
    return fmt::format("0x{:016x}", guid);
}

std::string format_mac(std::uint64_t mac) {
    return fmt::format("{:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", mac >> 40 & 0xff,
                       mac >> 32 & 0xff, mac >> 24 & 0xff, mac >> 16 & 0xff, mac >> 8 & 0xff,
                       mac & 0xff);
}

std::string format_ip(const Address &address) {
    if (is_ipv4_mapped(address))
        return fmt::format("{}.{}.{}.{}", address[12], address[13], address[14], address[15]);
    std::array<char, INET6_ADDRSTRLEN> text{};
    inet_ntop(AF_INET6, address.data(), text.data(), text.size());
    return text.data();
}

} // namespace collwire::topology
