// SPDX-License-Identifier: Apache-2.0
// The fabric as a topology file describes it: which RDMA port sits on which switch port, and which
// tier a pair of ports has to cross. The format is specified in docs/topology.md.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "correlate/topology/address.h"
#include "correlate/topology/document.h"
#include "correlate/topology/problems.h"

namespace collwire::topology {

// The highest level of the fabric on the shortest path between two ports. A core switch counts as
// Superspine.
enum class Tier : std::uint8_t { Self, Leaf, Spine, Superspine, Unknown };

std::string_view tier_name(Tier tier); // "self", "leaf", "spine", "superspine", "unknown"

// Two different ports of one host: a software device (rxe, siw) keeps the bytes in the kernel; a
// hardware NIC sends them through the fabric like any others.
enum class SameHost { Self, ByFabric };

// A port of one Topology; valid for that Topology only.
struct PortRef {
    std::uint32_t index = 0;
    friend bool operator==(const PortRef &, const PortRef &) = default;
};

// A port as given in the file; views live as long as the Topology.
struct Port {
    std::string_view host;   // empty: not given
    std::string_view device; // empty: not given
    std::string_view netdev;
    std::uint32_t port = 0; // 0: not given, stands for every port of the device
    std::string_view switch_id;
    std::string_view switch_port;
    SwitchTier switch_tier = SwitchTier::Leaf;
    std::string_view pod;
    std::optional<std::uint32_t> rail;
    std::optional<Address> ip;
    std::optional<Address> gid;
    std::optional<std::uint64_t> guid;
    std::optional<std::uint64_t> mac;
    std::optional<std::uint16_t> lid;
};

struct Switch {
    std::string_view id;
    SwitchTier tier = SwitchTier::Leaf;
    std::string_view pod;
    std::span<const std::uint32_t> uplinks; // indexes into the switches of the Topology
};

// The known facts about the far end of a connection. MAC: 48 bits, first byte most significant.
struct Endpoint {
    std::optional<Address> gid = {};
    std::optional<std::uint16_t> lid = {};
    std::optional<std::uint64_t> subnet_prefix = {}; // host byte order; narrows the LID down
    std::optional<Address> ip = {};                  // IPv4 as ::ffff:a.b.c.d
    std::optional<std::uint64_t> mac = {};
};

// Limits of a file after its patterns are expanded. A file beyond any of them is rejected.
struct Limits {
    std::size_t ports = 1'000'000;
    std::size_t switches = 100'000;
    std::size_t uplinks = 4'000'000;
    std::size_t text_bytes = 256U << 20; // distinct names
    // Switches above a switch, once for each path to them, summed over distinct sets of uplinks.
    std::size_t paths = 64U << 20;
};

class Topology {
public:
    Topology(Topology &&) = default;
    Topology &operator=(Topology &&) = default;

    // The port of this machine that a capture names. Host names match exactly, then without the
    // domain if only one of the two has one. After host+device+port: an entry of the device without
    // a port, then an entry of the host alone.
    [[nodiscard]] std::optional<PortRef> find_local(std::string_view host, std::string_view device,
                                                    std::uint32_t port) const;
    // The same by network interface, for files made from LLDP.
    [[nodiscard]] std::optional<PortRef> find_netdev(std::string_view host,
                                                     std::string_view netdev) const;
    // By GID (as given; IPv4-mapped and IPv6 as an IP; lower half as a port GUID; EUI-64 as a MAC),
    // then LID, IP, MAC. Absent if an address is not unique.
    [[nodiscard]] std::optional<PortRef> find_remote(const Endpoint &endpoint) const;

    // All ports of a host, by the same rule for its name; in the order of the file.
    [[nodiscard]] std::vector<PortRef> ports_of(std::string_view host) const;

    // Thread-safe. Ports of this Topology only. One entry on both sides is Self, unless it stands
    // for a whole host and hosts are not Self: its ports may be different ones on the same switch.
    [[nodiscard]] Tier classify(const PortRef &a, const PortRef &b,
                                SameHost same_host = SameHost::Self) const;

    [[nodiscard]] std::size_t port_count() const { return ports_.size(); }
    [[nodiscard]] Port port(PortRef ref) const;
    [[nodiscard]] std::size_t switch_count() const { return switches_.size(); }
    [[nodiscard]] Switch switch_at(std::uint32_t index) const;
    [[nodiscard]] std::uint32_t switch_of(PortRef ref) const {
        return ports_[ref.index].switch_index;
    }

    [[nodiscard]] const std::string &source() const { return source_; }
    [[nodiscard]] const std::string &generated() const { return generated_; }
    [[nodiscard]] const Problems &problems() const { return problems_; } // warnings only

private:
    friend class Builder;
    Topology() = default;

    static constexpr std::uint32_t NONE = UINT32_MAX;
    static constexpr std::uint32_t AMBIGUOUS = UINT32_MAX - 1;

    // Names are numbers into text_; 0 is the empty name.
    struct StoredPort {
        Address gid{};
        Address ip{};
        std::uint64_t guid = 0;
        std::uint64_t mac = 0;
        std::uint32_t host = 0;
        std::uint32_t device = 0;
        std::uint32_t netdev = 0;
        std::uint32_t switch_port = 0;
        std::uint32_t switch_index = 0;
        std::uint32_t number = 0;
        std::uint32_t rail = NONE;
        std::uint16_t lid = 0;
        std::uint8_t lmc = 0;
        friend bool operator==(const StoredPort &, const StoredPort &) = default;
    };
    struct StoredSwitch {
        std::uint32_t id = 0;
        std::uint32_t pod = 0;
        SwitchTier tier = SwitchTier::Leaf;
        std::uint32_t above = 0; // index into above_
        std::vector<std::uint32_t> uplinks;
    };
    struct LocalKey {
        std::uint32_t host, name, port;
        friend bool operator==(const LocalKey &, const LocalKey &) = default;
    };
    struct LidKey {
        std::uint64_t prefix;
        std::uint32_t lid;
        friend bool operator==(const LidKey &, const LidKey &) = default;
    };
    struct Hash {
        std::size_t operator()(std::uint64_t value) const;
        std::size_t operator()(const LocalKey &key) const;
        std::size_t operator()(const LidKey &key) const;
        std::size_t operator()(const Address &address) const;
    };
    template <typename Key> using Index = std::unordered_map<Key, std::uint32_t, Hash>;

    [[nodiscard]] std::uint32_t text_number(std::string_view text) const;
    [[nodiscard]] std::uint32_t host_number(std::string_view host) const;
    template <typename Key> static std::uint32_t lookup(const Index<Key> &index, const Key &key);
    [[nodiscard]] std::uint32_t find_gid(const Address &gid) const;
    [[nodiscard]] std::uint32_t find_lid(const Endpoint &endpoint) const;
    [[nodiscard]] std::optional<SwitchTier> meeting_tier(std::uint32_t a, std::uint32_t b) const;
    [[nodiscard]] std::optional<SwitchTier> common_tier(std::uint32_t above_a,
                                                        std::uint32_t above_b) const;
    [[nodiscard]] bool is_above(std::uint32_t upper, std::uint32_t lower) const;
    [[nodiscard]] bool reaches_superspine(std::uint32_t switch_index) const;
    [[nodiscard]] Tier classify_by_pods(std::uint32_t a, std::uint32_t b) const;

    std::deque<std::string> text_{""};
    std::unordered_map<std::string_view, std::uint32_t> text_numbers_;
    std::vector<StoredSwitch> switches_;
    std::vector<StoredPort> ports_;
    // Each distinct set of switches above a switch, sorted by tier and index.
    std::vector<std::vector<std::uint32_t>> above_;
    // One cell per pair of above_ sets: 0 not computed, 1 no common switch, else the lowest common
    // tier plus 2.
    std::unique_ptr<std::atomic<std::uint8_t>[]> meeting_cache_;

    Index<std::uint64_t> hosts_;       // name -> name, to separate hosts from other names
    Index<std::uint64_t> short_hosts_; // name before the first dot -> full name
    Index<LocalKey> by_device_, by_netdev_;
    Index<std::uint64_t> by_host_, by_guid_, by_mac_, by_lid_;
    Index<LidKey> by_prefix_lid_;
    Index<Address> by_gid_, by_ip_;
    std::string source_;
    std::string generated_;
    Problems problems_;
};

// The file's text (UTF-8, a byte-order mark is allowed). The error is the first problem;
// check_topology gives all.
Result<Topology> parse_topology(std::string_view json, const Limits &limits = {});

// Every problem of the file; without an error among them `topology` holds the result.
struct Checked {
    Problems problems;
    std::optional<Topology> topology;
};
Checked check_topology(std::string_view json, const Limits &limits = {});

} // namespace collwire::topology
