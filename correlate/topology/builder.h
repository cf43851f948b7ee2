// SPDX-License-Identifier: Apache-2.0
// Builds a Topology from entries and reports contradictions. Order: switches, link_switches(),
// ports, finish().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "correlate/topology/document.h"
#include "correlate/topology/problems.h"
#include "correlate/topology/topology.h"

namespace collwire::topology {

// The longest name; names are also free of control characters.
constexpr std::size_t NAME_BYTES_MAX = 255;

class Builder {
public:
    Builder(const Limits &limits, Problems &problems) : limits_(limits), problems_(problems) {}

    // `entry_index` is the position in the file's list, for messages.
    void add_switch(SwitchEntry &&entry, std::size_t entry_index);
    void link_switches();
    void add_port(const PortEntry &entry, std::size_t entry_index);
    void set_origin(std::string source, std::string generated);

    // Absent after any error.
    std::optional<Topology> finish();

    // False once a limit was passed; more entries are pointless then.
    [[nodiscard]] bool within_limits() const { return within_limits_; }

private:
    struct Pending { // uplinks by name, until every switch is known
        std::vector<std::string> uplinks;
        std::size_t entry_index = 0;
    };

    void link_one(std::uint32_t index);
    void compute_above();
    void warn_about_gaps();
    bool check_name(const std::string &name, const std::string &where);
    void over_limit(const std::string &where, const char *what, std::size_t limit);
    std::uint32_t intern(std::string_view text);
    bool read_addresses(const PortEntry &entry, const std::string &where,
                        Topology::StoredPort &port);
    bool index_identity(std::uint32_t index, const std::string &where);
    void index_lid(std::uint32_t index);
    void index_host(std::uint32_t host);
    template <typename Key>
    bool claim(Topology::Index<Key> &map, const Key &key, std::uint32_t index,
               const std::string &where, const std::string &what);
    [[nodiscard]] std::string describe(std::uint32_t port_index) const;

    const Limits limits_;
    Problems &problems_;
    Topology topology_;
    std::vector<Pending> pending_;
    std::vector<std::size_t> port_entries_; // the file's entry of each port
    std::unordered_map<std::uint32_t, std::uint32_t> switch_by_name_;
    std::size_t text_bytes_ = 0;
    std::size_t uplinks_ = 0;
    bool within_limits_ = true;
};

} // namespace collwire::topology
