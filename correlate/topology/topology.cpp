// SPDX-License-Identifier: Apache-2.0
#include "correlate/topology/topology.h"

#include <algorithm>

namespace collwire::topology {

namespace {

// splitmix64's finaliser: spreads keys that differ in few bits.
std::uint64_t mix(std::uint64_t value) {
    value ^= value >> 30;
    value *= 0xbf58476d1ce4e5b9;
    value ^= value >> 27;
    value *= 0x94d049bb133111eb;
    return value ^ value >> 31;
}

Tier tier_of(SwitchTier tier) {
    switch (tier) {
    case SwitchTier::Leaf:
        return Tier::Leaf;
    case SwitchTier::Spine:
        return Tier::Spine;
    case SwitchTier::Superspine:
    case SwitchTier::Core:
        return Tier::Superspine;
    }
    return Tier::Unknown;
}

} // namespace

std::string_view tier_name(Tier tier) {
    switch (tier) {
    case Tier::Self:
        return "self";
    case Tier::Leaf:
        return "leaf";
    case Tier::Spine:
        return "spine";
    case Tier::Superspine:
        return "superspine";
    case Tier::Unknown:
        break;
    }
    return "unknown";
}

std::size_t Topology::Hash::operator()(std::uint64_t value) const {
    return mix(value);
}
std::size_t Topology::Hash::operator()(const LocalKey &key) const {
    return mix(mix(static_cast<std::uint64_t>(key.host) << 32 | key.name) + key.port);
}
std::size_t Topology::Hash::operator()(const LidKey &key) const {
    return mix(mix(key.prefix) + key.lid);
}
std::size_t Topology::Hash::operator()(const Address &address) const {
    return mix(mix(upper_half(address)) + lower_half(address));
}

template <typename Key> std::uint32_t Topology::lookup(const Index<Key> &index, const Key &key) {
    const auto found = index.find(key);
    return found == index.end() ? NONE : found->second;
}

std::uint32_t Topology::text_number(std::string_view text) const {
    const auto found = text_numbers_.find(text);
    return found == text_numbers_.end() ? NONE : found->second;
}

std::uint32_t Topology::host_number(std::string_view host) const {
    if (host.empty())
        return NONE;
    const std::uint32_t exact = text_number(host);
    if (exact != NONE && hosts_.contains(exact))
        return exact;
    if (parse_ip(host))
        return NONE; // the dots of an address are not a domain
    const auto dot = host.find('.');
    if (dot == std::string_view::npos) {
        const std::uint32_t full =
            exact == NONE ? NONE : lookup<std::uint64_t>(short_hosts_, exact);
        return full == AMBIGUOUS ? NONE : full;
    }
    const std::uint32_t without_domain = text_number(host.substr(0, dot));
    return without_domain != NONE && hosts_.contains(without_domain) ? without_domain : NONE;
}

std::optional<PortRef> Topology::find_local(std::string_view host, std::string_view device,
                                            std::uint32_t port) const {
    const std::uint32_t host_name = host_number(host);
    if (host_name == NONE)
        return std::nullopt;
    std::uint32_t found = NONE;
    const std::uint32_t device_name = device.empty() ? NONE : text_number(device);
    if (device_name != NONE) {
        found = lookup(by_device_, LocalKey{host_name, device_name, port});
        if (found == NONE)
            found = lookup(by_device_, LocalKey{host_name, device_name, 0});
    }
    if (found == NONE)
        found = lookup<std::uint64_t>(by_host_, host_name);
    if (found == NONE)
        return std::nullopt;
    return PortRef{found};
}

std::optional<PortRef> Topology::find_netdev(std::string_view host, std::string_view netdev) const {
    const std::uint32_t host_name = host_number(host);
    const std::uint32_t netdev_name = netdev.empty() ? NONE : text_number(netdev);
    if (host_name == NONE || netdev_name == NONE)
        return std::nullopt;
    const std::uint32_t found = lookup(by_netdev_, LocalKey{host_name, netdev_name, 0});
    if (found == NONE)
        return std::nullopt;
    return PortRef{found};
}

std::vector<PortRef> Topology::ports_of(std::string_view host) const {
    std::vector<PortRef> refs;
    const std::uint32_t host_name = host_number(host);
    if (host_name == NONE)
        return refs;
    for (std::uint32_t i = 0; i < ports_.size(); i++) {
        if (ports_[i].host == host_name)
            refs.push_back({i});
    }
    return refs;
}

std::uint32_t Topology::find_gid(const Address &gid) const {
    std::uint32_t found = lookup(by_gid_, gid);
    if (found == NONE)
        found = lookup(by_ip_, gid);
    if (found != NONE || is_ipv4_mapped(gid))
        return found;
    const std::uint64_t interface_id = lower_half(gid);
    if (interface_id == 0)
        return NONE;
    found = lookup(by_guid_, interface_id);
    if (found == NONE) {
        if (const auto mac = mac_of_eui64(interface_id))
            found = lookup(by_mac_, *mac);
    }
    return found;
}

std::uint32_t Topology::find_lid(const Endpoint &endpoint) const {
    if (!endpoint.subnet_prefix)
        return lookup<std::uint64_t>(by_lid_, *endpoint.lid);
    const std::uint32_t in_subnet =
        lookup(by_prefix_lid_, LidKey{*endpoint.subnet_prefix, *endpoint.lid});
    return in_subnet != NONE ? in_subnet : lookup(by_prefix_lid_, LidKey{0, *endpoint.lid});
}

std::optional<PortRef> Topology::find_remote(const Endpoint &endpoint) const {
    std::uint32_t found = NONE;
    if (endpoint.gid && *endpoint.gid != Address{})
        found = find_gid(*endpoint.gid);
    if (found == NONE && endpoint.lid.value_or(0) != 0)
        found = find_lid(endpoint);
    if (found == NONE && endpoint.ip)
        found = lookup(by_ip_, *endpoint.ip);
    if (found == NONE && endpoint.mac)
        found = lookup(by_mac_, *endpoint.mac);
    if (found == NONE || found == AMBIGUOUS)
        return std::nullopt;
    return PortRef{found};
}

Port Topology::port(PortRef ref) const {
    const StoredPort &stored = ports_[ref.index];
    const StoredSwitch &on = switches_[stored.switch_index];
    Port port;
    port.host = text_[stored.host];
    port.device = text_[stored.device];
    port.netdev = text_[stored.netdev];
    port.port = stored.number;
    port.switch_id = text_[on.id];
    port.switch_port = text_[stored.switch_port];
    port.switch_tier = on.tier;
    port.pod = text_[on.pod];
    if (stored.rail != NONE)
        port.rail = stored.rail;
    if (stored.ip != Address{})
        port.ip = stored.ip;
    if (stored.gid != Address{})
        port.gid = stored.gid;
    if (stored.guid != 0)
        port.guid = stored.guid;
    if (stored.mac != 0)
        port.mac = stored.mac;
    if (stored.lid != 0)
        port.lid = stored.lid;
    return port;
}

Switch Topology::switch_at(std::uint32_t index) const {
    const StoredSwitch &stored = switches_[index];
    return {text_[stored.id], stored.tier, text_[stored.pod], stored.uplinks};
}

bool Topology::is_above(std::uint32_t upper, std::uint32_t lower) const {
    if (switches_[upper].tier <= switches_[lower].tier)
        return false;
    const auto &above = above_[switches_[lower].above];
    const auto order = [this](std::uint32_t a, std::uint32_t b) {
        return std::pair(switches_[a].tier, a) < std::pair(switches_[b].tier, b);
    };
    return std::binary_search(above.begin(), above.end(), upper, order);
}

bool Topology::reaches_superspine(std::uint32_t switch_index) const {
    if (switches_[switch_index].tier >= SwitchTier::Superspine)
        return true;
    const auto &above = above_[switches_[switch_index].above];
    return !above.empty() && switches_[above.back()].tier >= SwitchTier::Superspine;
}

// The lowest tier at which two sorted sets share a switch: they are sorted by tier, so the first
// common one is it.
std::optional<SwitchTier> Topology::common_tier(std::uint32_t above_a,
                                                std::uint32_t above_b) const {
    constexpr std::uint8_t NOT_COMPUTED = 0;
    constexpr std::uint8_t NEVER = 1;
    constexpr std::uint8_t FIRST_TIER = 2;
    std::atomic<std::uint8_t> *cell = nullptr;
    if (meeting_cache_) {
        const auto low = std::min(above_a, above_b);
        const auto high = std::max(above_a, above_b);
        cell = &meeting_cache_[static_cast<std::size_t>(low) * above_.size() + high];
        const std::uint8_t known = cell->load(std::memory_order_relaxed);
        if (known == NEVER)
            return std::nullopt;
        if (known != NOT_COMPUTED)
            return static_cast<SwitchTier>(known - FIRST_TIER);
    }
    const auto &a = above_[above_a];
    const auto &b = above_[above_b];
    std::optional<SwitchTier> meeting;
    for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
        if (a[i] == b[j]) {
            meeting = switches_[a[i]].tier;
            break;
        }
        if (std::pair(switches_[a[i]].tier, a[i]) < std::pair(switches_[b[j]].tier, b[j]))
            i++;
        else
            j++;
    }
    if (cell != nullptr) {
        const auto value =
            meeting ? static_cast<std::uint8_t>(FIRST_TIER + static_cast<std::uint8_t>(*meeting))
                    : NEVER;
        cell->store(value, std::memory_order_relaxed);
    }
    return meeting;
}

std::optional<SwitchTier> Topology::meeting_tier(std::uint32_t a, std::uint32_t b) const {
    if (a == b || is_above(a, b))
        return switches_[a].tier;
    if (is_above(b, a))
        return switches_[b].tier;
    return common_tier(switches_[a].above, switches_[b].above);
}

// Only if the deciding uplinks are not in the file; see docs/topology.md, "Tiers".
Tier Topology::classify_by_pods(std::uint32_t a, std::uint32_t b) const {
    const std::uint32_t pod_a = switches_[a].pod;
    const std::uint32_t pod_b = switches_[b].pod;
    if (pod_a == 0 || pod_b == 0)
        return Tier::Unknown;
    if (pod_a == pod_b) {
        const bool some_missing = switches_[a].uplinks.empty() || switches_[b].uplinks.empty();
        return some_missing ? Tier::Spine : Tier::Unknown;
    }
    const bool some_missing = !reaches_superspine(a) || !reaches_superspine(b);
    return some_missing ? Tier::Superspine : Tier::Unknown;
}

Tier Topology::classify(const PortRef &a, const PortRef &b, SameHost same_host) const {
    const StoredPort &from = ports_[a.index];
    const StoredPort &to = ports_[b.index];
    const bool stands_for_several =
        (from.device != 0 && from.number == 0) ||
        (from.host != 0 && lookup<std::uint64_t>(by_host_, from.host) == a.index);
    if (a == b && !stands_for_several)
        return Tier::Self;
    if (same_host == SameHost::Self && from.host != 0 && from.host == to.host)
        return Tier::Self;
    if (const auto met = meeting_tier(from.switch_index, to.switch_index))
        return tier_of(*met);
    return classify_by_pods(from.switch_index, to.switch_index);
}

} // namespace collwire::topology
