// SPDX-License-Identifier: Apache-2.0
#include "correlate/topology/builder.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>

namespace collwire::topology {

namespace {

std::string entry_path(const char *list, std::size_t index) {
    return fmt::format("{}[{}]", list, index);
}

// With more errors than this the search for cycles is skipped.
constexpr std::size_t CYCLES_LOOKED_FOR = 50;

bool has_control(std::string_view text) {
    return std::any_of(text.begin(), text.end(),
                       [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

} // namespace

std::uint32_t Builder::intern(std::string_view text) {
    if (text.empty())
        return 0;
    const auto found = topology_.text_numbers_.find(text);
    if (found != topology_.text_numbers_.end())
        return found->second;
    text_bytes_ += text.size();
    if (text_bytes_ > limits_.text_bytes)
        over_limit("the file", "bytes of names", limits_.text_bytes);
    const auto number = static_cast<std::uint32_t>(topology_.text_.size());
    topology_.text_.emplace_back(text);
    topology_.text_numbers_.emplace(topology_.text_.back(), number);
    return number;
}

void Builder::over_limit(const std::string &where, const char *what, std::size_t limit) {
    if (within_limits_)
        problems_.error(
            fmt::format("{}: more than {} {} in all. Fix: narrow the ranges, or split the file",
                        where, limit, what));
    within_limits_ = false;
}

bool Builder::check_name(const std::string &name, const std::string &where) {
    if (name.size() > NAME_BYTES_MAX) {
        problems_.error(
            fmt::format("{}: {} has {} bytes, at most {} are allowed. Fix: use a shorter name",
                        where, quote(name), name.size(), NAME_BYTES_MAX));
        return false;
    }
    if (has_control(name)) {
        problems_.error(fmt::format(
            "{}: {} holds a control character. Fix: remove it from the name", where, quote(name)));
        return false;
    }
    return true;
}

void Builder::add_switch(SwitchEntry &&entry, std::size_t entry_index) {
    if (!within_limits_)
        return;
    const std::string where = entry_path("switches", entry_index);
    if (topology_.switches_.size() == limits_.switches)
        return over_limit(where, "switches", limits_.switches);
    uplinks_ += entry.uplinks.size();
    if (uplinks_ > limits_.uplinks)
        return over_limit(where, "uplinks", limits_.uplinks);
    if (!check_name(entry.id, where + ".id") || !check_name(entry.pod, where + ".pod"))
        return;
    const auto index = static_cast<std::uint32_t>(topology_.switches_.size());
    const std::uint32_t name = intern(entry.id);
    const auto [known, added] = switch_by_name_.emplace(name, index);
    if (!added) {
        problems_.error(
            fmt::format("{}.id: {} is also switches[{}]. Fix: give each switch an id of its own",
                        where, quote(entry.id), pending_[known->second].entry_index));
        return;
    }
    Topology::StoredSwitch stored;
    stored.id = name;
    stored.pod = intern(entry.pod);
    stored.tier = entry.tier;
    topology_.switches_.push_back(std::move(stored));
    pending_.push_back({std::move(entry.uplinks), entry_index});
}

void Builder::link_one(std::uint32_t index) {
    auto &lower = topology_.switches_[index];
    for (std::size_t i = 0; i < pending_[index].uplinks.size(); i++) {
        const std::string &name = pending_[index].uplinks[i];
        const auto where = [&] {
            return fmt::format("switches[{}].uplinks[{}]", pending_[index].entry_index, i);
        };
        const std::uint32_t number = topology_.text_number(name);
        const auto found = switch_by_name_.find(number);
        if (number == Topology::NONE || found == switch_by_name_.end()) {
            problems_.error(
                fmt::format("{}: no switch {} in \"switches\". Fix: add it, or correct the name",
                            where(), quote(name)));
            continue;
        }
        const auto &upper = topology_.switches_[found->second];
        const auto &upper_uplinks = pending_[found->second].uplinks;
        if (found->second == index) {
            problems_.error(
                fmt::format("{}: {} is its own uplink. Fix: remove it", where(), quote(name)));
        } else if (upper.tier > lower.tier) {
            lower.uplinks.push_back(found->second);
        } else if (problems_.errors() < CYCLES_LOOKED_FOR &&
                   std::find(upper_uplinks.begin(), upper_uplinks.end(),
                             topology_.text_[lower.id]) != upper_uplinks.end()) {
            problems_.error(fmt::format(
                "{}: {} and {} are uplinks of each other, a cycle. Fix: keep the one that "
                "leads to the higher tier",
                where(), quote(topology_.text_[lower.id]), quote(name)));
        } else {
            problems_.error(fmt::format(
                "{}: {} (tier {}) is not above {} (tier {}). Fix: list only switches of a "
                "higher tier, or correct the tiers",
                where(), quote(name), switch_tier_name(upper.tier),
                quote(topology_.text_[lower.id]), switch_tier_name(lower.tier)));
        }
    }
    std::sort(lower.uplinks.begin(), lower.uplinks.end());
    const auto repeated = std::unique(lower.uplinks.begin(), lower.uplinks.end());
    if (repeated != lower.uplinks.end())
        problems_.warning(
            fmt::format("switches[{}].uplinks: a switch is listed twice; it counts once",
                        pending_[index].entry_index));
    lower.uplinks.erase(repeated, lower.uplinks.end());
}

void Builder::link_switches() {
    for (std::uint32_t i = 0; i < topology_.switches_.size(); i++)
        link_one(i);
    pending_.shrink_to_fit();
    if (problems_.errors() == 0)
        compute_above();
}

// From the top down; switches with the same uplinks share one set, which keeps a regular fabric
// small.
void Builder::compute_above() {
    auto &switches = topology_.switches_;
    std::vector<std::uint32_t> order(switches.size());
    for (std::uint32_t i = 0; i < order.size(); i++)
        order[i] = i;
    const auto lower_first = [&](std::uint32_t a, std::uint32_t b) {
        return std::pair(switches[a].tier, a) < std::pair(switches[b].tier, b);
    };
    std::sort(order.begin(), order.end(), lower_first);
    std::map<std::vector<std::uint32_t>, std::uint32_t> sets;
    topology_.above_.emplace_back(); // set 0: nothing above
    sets.emplace(std::vector<std::uint32_t>{}, 0);
    std::size_t paths = 0;
    std::vector<std::uint32_t> taken_for(switches.size()); // the set it was last put into
    for (auto at = order.rbegin(); at != order.rend(); ++at) {
        auto &one = switches[*at];
        const auto made =
            sets.emplace(one.uplinks, static_cast<std::uint32_t>(topology_.above_.size()));
        const std::uint32_t set = made.first->second;
        one.above = set;
        if (!made.second)
            continue;
        std::vector<std::uint32_t> above;
        std::map<std::uint32_t, bool> merged;
        const auto take = [&](const std::vector<std::uint32_t> &further) {
            for (const std::uint32_t upper : further)
                if (taken_for[upper] != set) {
                    taken_for[upper] = set;
                    above.push_back(upper);
                }
            paths += further.size();
        };
        take(one.uplinks);
        for (const std::uint32_t uplink : one.uplinks) {
            if (!merged.emplace(switches[uplink].above, true).second)
                continue;
            take(topology_.above_[switches[uplink].above]);
            if (paths > limits_.paths)
                return over_limit("switches", "uplink paths", limits_.paths);
        }
        std::sort(above.begin(), above.end(), lower_first);
        topology_.above_.push_back(std::move(above));
    }
    constexpr std::size_t CACHED_SETS_MAX = 4096; // 16 MiB of cells
    const std::size_t count = topology_.above_.size();
    if (count <= CACHED_SETS_MAX)
        topology_.meeting_cache_ = std::make_unique<std::atomic<std::uint8_t>[]>(count * count);
}

bool Builder::read_addresses(const PortEntry &entry, const std::string &where,
                             Topology::StoredPort &port) {
    const auto refuse = [&](const char *field, const std::string &text, const char *wanted) {
        problems_.error(fmt::format("{}.{}: {} is not {}. Fix: correct it, or leave it out", where,
                                    field, quote(text), wanted));
        return false;
    };
    if (!entry.ip.empty()) {
        const auto ip = parse_ip(entry.ip);
        if (!ip)
            return refuse("ip", entry.ip, "an IPv4 or IPv6 address");
        port.ip = *ip;
    }
    if (!entry.gid.empty()) {
        const auto gid = parse_gid(entry.gid);
        if (!gid)
            return refuse("gid", entry.gid, "a GID such as fe80::5054:ff:fe12:3456");
        port.gid = *gid;
    }
    if (!entry.guid.empty()) {
        const auto guid = parse_guid(entry.guid);
        if (!guid)
            return refuse("guid", entry.guid, "a GUID such as 0x506b4b03009c0be2");
        port.guid = *guid;
    }
    if (!entry.mac.empty()) {
        const auto mac = parse_mac(entry.mac);
        if (!mac)
            return refuse("mac", entry.mac, "a MAC address such as 52:54:00:12:34:56");
        port.mac = *mac;
    }
    const std::uint32_t lid = entry.lid.value_or(0);
    const std::uint32_t lmc = entry.lmc.value_or(0);
    if (lid > 0xbfff)
        return refuse("lid", std::to_string(lid), "a unicast LID (0 to 49151)");
    if (lmc > 7)
        return refuse("lmc", std::to_string(lmc), "between 0 and 7");
    port.lid = static_cast<std::uint16_t>(lid);
    port.lmc = static_cast<std::uint8_t>(lmc);
    return true;
}

std::string Builder::describe(std::uint32_t port_index) const {
    const Port port = topology_.port({port_index});
    std::string text = fmt::format("ports[{}]", port_entries_[port_index]);
    if (!port.host.empty())
        text +=
            fmt::format(" (host {}{}{})", quote(port.host), port.device.empty() ? "" : ", device ",
                        port.device.empty() ? "" : quote(port.device));
    return text;
}

template <typename Key>
bool Builder::claim(Topology::Index<Key> &map, const Key &key, std::uint32_t index,
                    const std::string &where, const std::string &what) {
    const auto [known, added] = map.emplace(key, index);
    if (added)
        return true;
    const std::uint32_t other = known->second;
    if (other != Topology::AMBIGUOUS && topology_.ports_[other] == topology_.ports_[index]) {
        problems_.warning(fmt::format("{}: repeats {}; it counts once", where, describe(other)));
        return false;
    }
    problems_.error(fmt::format("{}: {} is also that of {}. Fix: remove or correct one of the two",
                                where, what,
                                other == Topology::AMBIGUOUS ? "others" : describe(other)));
    return false;
}

// A port may have several LIDs (LMC); a LID that two subnets use is found with its subnet prefix
// only.
void Builder::index_lid(std::uint32_t index) {
    const auto &port = topology_.ports_[index];
    if (port.lid == 0)
        return;
    const bool has_prefix = port.gid != Address{} && !is_ipv4_mapped(port.gid);
    const std::uint64_t prefix = has_prefix ? upper_half(port.gid) : 0;
    const std::uint32_t first = port.lid & ~((1U << port.lmc) - 1U);
    for (std::uint32_t lid = first; lid < first + (1U << port.lmc); lid++) {
        const auto [known, added] = topology_.by_lid_.emplace(lid, index);
        if (!added)
            known->second = Topology::AMBIGUOUS;
        const auto [known_in_subnet, added_in_subnet] =
            topology_.by_prefix_lid_.emplace(Topology::LidKey{prefix, lid}, index);
        if (!added_in_subnet)
            known_in_subnet->second = Topology::AMBIGUOUS;
    }
}

void Builder::index_host(std::uint32_t host) {
    if (!topology_.hosts_.emplace(host, host).second)
        return;
    const std::string &name = topology_.text_[host];
    const auto dot = name.find('.');
    if (dot == std::string::npos || dot == 0 || parse_ip(name))
        return;
    const std::uint32_t short_name = intern(std::string_view(name).substr(0, dot));
    const auto [known, added] = topology_.short_hosts_.emplace(short_name, host);
    if (!added)
        known->second = Topology::AMBIGUOUS;
}

bool Builder::index_identity(std::uint32_t index, const std::string &where) {
    const auto port = topology_.ports_[index];
    const std::uint32_t number = port.number;
    if (port.device != 0 && port.host != 0 &&
        !claim(topology_.by_device_, Topology::LocalKey{port.host, port.device, number}, index,
               where,
               fmt::format("host {} device {} port {}", quote(topology_.text_[port.host]),
                           quote(topology_.text_[port.device]),
                           number == 0 ? "(any)" : std::to_string(number))))
        return false;
    if (port.guid != 0 &&
        !claim(topology_.by_guid_, port.guid, index, where, "GUID " + format_guid(port.guid)))
        return false;
    if (port.gid != Address{} &&
        !claim(topology_.by_gid_, port.gid, index, where, "GID " + format_ip(port.gid)))
        return false;
    if (port.ip != Address{} &&
        !claim(topology_.by_ip_, port.ip, index, where, "IP " + format_ip(port.ip)))
        return false;
    if (port.netdev != 0 && port.host != 0 &&
        !claim(topology_.by_netdev_, Topology::LocalKey{port.host, port.netdev, 0}, index, where,
               fmt::format("host {} interface {}", quote(topology_.text_[port.host]),
                           quote(topology_.text_[port.netdev]))))
        return false;
    if (port.mac != 0) {
        const auto known = topology_.by_mac_.find(port.mac);
        // The ports of a bond carry one MAC.
        const bool bond = known != topology_.by_mac_.end() && port.host != 0 &&
                          (known->second == Topology::AMBIGUOUS ||
                           topology_.ports_[known->second].host == port.host);
        if (bond)
            known->second = Topology::AMBIGUOUS;
        else if (!claim(topology_.by_mac_, port.mac, index, where, "MAC " + format_mac(port.mac)))
            return false;
    }
    const bool host_alone = port.host != 0 && port.device == 0 && port.netdev == 0 &&
                            port.guid == 0 && port.gid == Address{} && port.ip == Address{} &&
                            port.mac == 0 && port.lid == 0;
    if (host_alone &&
        !claim<std::uint64_t>(topology_.by_host_, port.host, index, where,
                              "host " + quote(topology_.text_[port.host]) + " without a device"))
        return false;
    index_lid(index);
    if (port.host != 0)
        index_host(port.host);
    return true;
}

void Builder::add_port(const PortEntry &entry, std::size_t entry_index) {
    if (!within_limits_)
        return;
    const std::string where = entry_path("ports", entry_index);
    if (topology_.ports_.size() == limits_.ports)
        return over_limit(where, "ports", limits_.ports);
    for (const auto &[field, name] : {std::pair{"host", &entry.host},
                                      {"device", &entry.device},
                                      {"netdev", &entry.netdev},
                                      {"switch_port", &entry.switch_port}}) {
        if (!name->empty() && !check_name(*name, where + '.' + field))
            return;
    }
    Topology::StoredPort port;
    if (!read_addresses(entry, where, port))
        return;
    if (entry.host.empty() && port.guid == 0 && port.gid == Address{} && port.ip == Address{} &&
        port.mac == 0 && port.lid == 0) {
        problems_.error(fmt::format(
            "{}: nothing says which port this is. Fix: give it a host, guid, gid, ip, mac or lid",
            where));
        return;
    }
    if (entry.switch_id.empty()) {
        problems_.error(fmt::format(
            "{}: has no \"switch\". Fix: name the switch the port is cabled to", where));
        return;
    }
    const std::uint32_t switch_name = topology_.text_number(entry.switch_id);
    const auto on = switch_by_name_.find(switch_name);
    if (switch_name == Topology::NONE || on == switch_by_name_.end()) {
        problems_.error(
            fmt::format("{}.switch: no switch {} in \"switches\". Fix: add it, or correct the name",
                        where, quote(entry.switch_id)));
        return;
    }
    port.switch_index = on->second;
    port.host = intern(entry.host);
    port.device = intern(entry.device);
    port.netdev = intern(entry.netdev);
    port.switch_port = intern(entry.switch_port);
    port.number = entry.port.value_or(0);
    if (entry.rail)
        port.rail = *entry.rail;
    const auto index = static_cast<std::uint32_t>(topology_.ports_.size());
    topology_.ports_.push_back(port);
    port_entries_.push_back(entry_index);
    if (!index_identity(index, where)) {
        topology_.ports_.pop_back();
        port_entries_.pop_back();
    }
}

void Builder::set_origin(std::string source, std::string generated) {
    topology_.source_ = std::move(source);
    topology_.generated_ = std::move(generated);
}

void Builder::warn_about_gaps() {
    std::vector<bool> used(topology_.switches_.size());
    for (const auto &port : topology_.ports_)
        used[port.switch_index] = true;
    std::size_t unplaced = 0;
    std::uint32_t example = 0;
    std::size_t with_ports = 0;
    for (std::uint32_t i = 0; i < used.size(); i++) {
        if (!used[i])
            continue;
        with_ports++;
        const auto &one = topology_.switches_[i];
        if (one.tier == SwitchTier::Leaf && one.uplinks.empty() && one.pod == 0) {
            unplaced++;
            example = i;
        }
    }
    if (unplaced > 0 && with_ports > 1)
        problems_.warning(fmt::format(
            "switches: {} with ports have neither uplinks nor a pod ({}): traffic between "
            "them and other switches is of unknown tier. Fix: give them uplinks",
            unplaced, quote(topology_.text_[topology_.switches_[example].id])));
    if (topology_.ports_.empty())
        problems_.warning("ports: the list is empty, so every tier will be unknown. Fix: list the "
                          "ports of the hosts");
}

std::optional<Topology> Builder::finish() {
    if (problems_.errors() > 0)
        return std::nullopt;
    warn_about_gaps();
    std::size_t ambiguous_lids = 0;
    for (const auto &[lid, index] : topology_.by_lid_)
        ambiguous_lids += index == Topology::AMBIGUOUS ? 1 : 0;
    if (ambiguous_lids > 0)
        problems_.warning(fmt::format(
            "ports: {} LIDs are used more than once; they identify a port only with its "
            "subnet prefix (\"gid\")",
            ambiguous_lids));
    topology_.problems_ = problems_;
    return std::move(topology_);
}

} // namespace collwire::topology
