// SPDX-License-Identifier: Apache-2.0
// Prints a topology as text.
#pragma once

#include <string>
#include <string_view>

#include "correlate/topology/import/importer.h"
#include "correlate/topology/topology.h"

namespace collwire::cli {

// "3 switches (2 leaf, 1 spine), 4 ports of 4 hosts"
std::string topology_counts(const topology::Topology &topology);
std::string import_counts(const topology::ImportCounts &counts);

// The switches by tier, the fabric as a tree, the hosts. Each ends with a newline.
std::string switches_text(const topology::Topology &topology);
std::string tree_text(const topology::Topology &topology);
std::string hosts_text(const topology::Topology &topology);
// The ports of one host and the uplinks of each; empty for an unknown host.
std::string host_text(const topology::Topology &topology, std::string_view host);

} // namespace collwire::cli
