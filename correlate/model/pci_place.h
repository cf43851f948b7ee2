// SPDX-License-Identifier: Apache-2.0
// Where a PCI function is in its machine, and how far apart two of them are.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace collwire::model {

struct PciPlace {
    std::string host_bridge; // "pci0000:00"; empty: not known
    // The bridge below that one which all of the function's traffic passes, with the host bridge
    // before it; empty: none, or not known.
    std::string root_port;
    std::int32_t numa_node = -1; // -1: not known
};

// `path`: see cw_pci_function.
[[nodiscard]] PciPlace pci_place(std::string_view path, std::int32_t numa_node);

enum class Distance : std::uint8_t {
    SameSwitch, // a PCI bridge below the host bridge is common to both
    SameNode,   // the host bridge is, or the NUMA node
    Far,
};

// The least that it can be by what is known of the two.
[[nodiscard]] Distance least_distance(const PciPlace &a, const PciPlace &b);

} // namespace collwire::model
