// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace collwire::model {

// In network order. RoCE v2 over IPv4 holds ::ffff:a.b.c.d.
using Gid = std::array<std::uint8_t, 16>;

[[nodiscard]] bool is_zero(const Gid &gid);
[[nodiscard]] bool is_ipv4_mapped(const Gid &gid);

// As inet_ntop writes IPv6 addresses (RFC 5952): "::ffff:10.0.0.1", "fe80::1".
[[nodiscard]] std::string gid_text(const Gid &gid);
// For people: IPv4 in dotted form.
[[nodiscard]] std::string short_gid_text(const Gid &gid);

struct GidHash {
    std::size_t operator()(const Gid &gid) const;
};

// splitmix64: spreads the bits of keys that are nearly counters.
[[nodiscard]] std::uint64_t mix(std::uint64_t value);

} // namespace collwire::model
