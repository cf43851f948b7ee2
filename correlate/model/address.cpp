// SPDX-License-Identifier: Apache-2.0
#include "correlate/model/address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

namespace collwire::model {

bool is_zero(const Gid &gid) {
    return std::all_of(gid.begin(), gid.end(), [](std::uint8_t byte) { return byte == 0; });
}

bool is_ipv4_mapped(const Gid &gid) {
    return std::all_of(gid.begin(), gid.begin() + 10,
                       [](std::uint8_t byte) { return byte == 0; }) &&
           gid[10] == 0xff && gid[11] == 0xff;
}

std::string gid_text(const Gid &gid) {
    std::array<char, INET6_ADDRSTRLEN> text{};
    inet_ntop(AF_INET6, gid.data(), text.data(), text.size());
    return text.data();
}

std::string short_gid_text(const Gid &gid) {
    if (!is_ipv4_mapped(gid))
        return gid_text(gid);
    std::array<char, INET_ADDRSTRLEN> text{};
    inet_ntop(AF_INET, gid.data() + 12, text.data(), text.size());
    return text.data();
}

std::uint64_t mix(std::uint64_t value) {
    value += 0x9e3779b97f4a7c15ULL;
    value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    value = (value ^ (value >> 27U)) * 0x94d049bb133111ebULL;
    return value ^ (value >> 31U);
}

std::size_t GidHash::operator()(const Gid &gid) const {
    std::uint64_t high = 0;
    std::uint64_t low = 0;
    std::memcpy(&high, gid.data(), sizeof(high));
    std::memcpy(&low, gid.data() + sizeof(high), sizeof(low));
    return static_cast<std::size_t>(mix(high ^ mix(low)));
}

} // namespace collwire::model
