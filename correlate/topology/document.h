// SPDX-License-Identifier: Apache-2.0
// The content of a topology file with every entry written out: importers produce it, the writer
// writes it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace collwire::topology {

enum class SwitchTier : std::uint8_t { Leaf, Spine, Superspine, Core };

std::string_view switch_tier_name(SwitchTier tier);
std::optional<SwitchTier> parse_switch_tier(std::string_view name);

struct SwitchEntry {
    std::string id;
    SwitchTier tier = SwitchTier::Leaf;
    std::string pod; // empty: not given
    std::vector<std::string> uplinks;
};

// Empty strings and absent numbers: not given.
struct PortEntry {
    std::string host;
    std::string device;
    std::string netdev;
    std::string ip;
    std::string gid;
    std::string guid;
    std::string mac;
    std::string switch_id;
    std::string switch_port;
    std::optional<std::uint32_t> port;
    std::optional<std::uint32_t> lid;
    std::optional<std::uint32_t> lmc;
    std::optional<std::uint32_t> rail;
};

struct Document {
    std::vector<SwitchEntry> switches;
    std::vector<PortEntry> ports;
    std::string source;    // where the content comes from, free text
    std::string generated; // when, free text
};

// The topology file of `document`, version 1. Bytes that are not UTF-8 become U+FFFD.
std::string to_json(const Document &document);

} // namespace collwire::topology
