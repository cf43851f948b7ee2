// SPDX-License-Identifier: Apache-2.0
// The place of a PCI function in its machine, and the distance between two of them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace collwire::model {

struct PciPlace {
    std::string host_bridge; // "pci0000:00"; empty: not known
    // The topmost bridge below the host bridge that all of the function's traffic passes, prefixed
    // with the host bridge; empty: none, or not known.
    std::string root_port;
    std::int32_t numa_node = -1; // -1: not known
};

// `path`: see cw_pci_function.
[[nodiscard]] PciPlace pci_place(std::string_view path, std::int32_t numa_node);

enum class Distance : std::uint8_t {
    SameSwitch, // a PCI bridge below the host bridge is common to both
    SameNode,   // both share the host bridge or the NUMA node
    Far,
};

// The shortest distance that the known facts allow.
[[nodiscard]] Distance least_distance(const PciPlace &a, const PciPlace &b);

} // namespace collwire::model
