// SPDX-License-Identifier: Apache-2.0
// The topology of the nodes that scenarios.h makes.
#pragma once

#include <string_view>

namespace collwire::test {

// Nodes 0 and 1 on leaf0, node 2 on leaf1; 10.0.0.(node + 1).
inline constexpr std::string_view LEAF_SPINE = R"({
  "collwire_topology": 1,
  "switches": [{"id": "spine0", "tier": "spine"},
               {"id": "leaf0", "tier": "leaf", "uplinks": ["spine0"]},
               {"id": "leaf1", "tier": "leaf", "uplinks": ["spine0"]}],
  "ports": [{"host": "node0", "device": "rxe0", "port": 1, "ip": "10.0.0.1", "switch": "leaf0", "switch_port": "swp1", "rail": 0},
            {"host": "node1", "device": "rxe0", "port": 1, "ip": "10.0.0.2", "switch": "leaf0", "switch_port": "swp2", "rail": 0},
            {"host": "node2", "device": "rxe0", "port": 1, "ip": "10.0.0.3", "switch": "leaf1", "switch_port": "swp1", "rail": 0}]
})";

} // namespace collwire::test
