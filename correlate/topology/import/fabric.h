// SPDX-License-Identifier: Apache-2.0
// An importer's result: switches, links between them and host ports, without tiers. to_document()
// turns it into a topology file and infers the tiers (docs/topology.md, "Importers").
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "correlate/topology/document.h"
#include "correlate/topology/problems.h"

namespace collwire::topology {

struct ImportCounts {
    std::size_t switches = 0;
    std::size_t switches_with_hosts = 0;
    std::size_t adapters =
        0; // channel adapters or, for LLDP, neighbours; aggregation nodes included
    std::size_t aggregation_nodes = 0; // SHARP, inside switches; not hosts
    std::size_t host_links = 0;        // to adapters, aggregation nodes included
    std::size_t switch_links = 0;
};

class Fabric {
public:
    // The switch known as `key`; `names` are its possible names, best first, the last one unique.
    std::uint32_t add_switch(std::string_view key, std::vector<std::string> names);
    // A cable between two switches. Either end may come first; a cable given from both ends counts
    // once.
    void add_link(std::uint32_t a, std::uint32_t a_port, std::uint32_t b, std::uint32_t b_port);
    // A host's port on a switch; switch_id is set later.
    void add_port(std::uint32_t on_switch, PortEntry entry);

    Document to_document(Problems &problems);

    ImportCounts counts;   // adapters and host links by the importer, the rest by to_document()
    std::string source;    // the tool that wrote the input
    std::string generated; // date from the input

private:
    struct SwitchNode {
        std::vector<std::string> names;
        std::map<std::uint32_t, std::size_t> neighbours; // by neighbour: number of cables
        std::size_t cables = 0;
        std::size_t hosts = 0;
    };
    using LinkEnd = std::pair<std::uint32_t, std::uint32_t>; // switch and port

    [[nodiscard]] std::vector<std::string> unique_ids() const;
    [[nodiscard]] std::vector<bool> find_leaves() const;
    void drop_minor_colour(const std::vector<std::uint32_t> &component,
                           const std::vector<int> &colour, std::vector<bool> &leaf) const;
    [[nodiscard]] std::vector<int> levels(const std::vector<bool> &leaf) const;

    std::vector<SwitchNode> switches_;
    std::unordered_map<std::string, std::uint32_t> by_key_;
    std::set<std::pair<LinkEnd, LinkEnd>> links_;
    std::vector<std::pair<std::uint32_t, PortEntry>> ports_;
};

// Text from a fabric as a name: control bytes and invalid UTF-8 become '?', at most 200 bytes.
std::string clean_name(std::string_view text);

} // namespace collwire::topology
