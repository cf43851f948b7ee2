// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/topology_text.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <fmt/format.h>
#include <map>
#include <set>
#include <vector>

namespace collwire::cli {

namespace {

using namespace topology;

constexpr std::array TIERS{SwitchTier::Core, SwitchTier::Superspine, SwitchTier::Spine,
                           SwitchTier::Leaf};
constexpr std::size_t NAMES_SHOWN = 6;

std::string counted(std::size_t count, std::string_view what) {
    const std::string_view ending = count == 1 ? "" : what.ends_with("ch") ? "es" : "s";
    return fmt::format("{} {}{}", count, what, ending);
}

// "a, b, c and 12 more"
std::string some_of(const std::vector<std::string> &names) {
    const std::size_t shown = names.size() > NAMES_SHOWN + 1 ? NAMES_SHOWN : names.size();
    std::string text;
    for (std::size_t i = 0; i < shown; i++)
        text += (i > 0 ? ", " : "") + names[i];
    if (shown < names.size())
        text += fmt::format(" and {} more", names.size() - shown);
    return text;
}

// A port is named by its device or interface, else by its most specific address.
std::string port_label(const Port &port) {
    std::string name(port.device.empty() ? port.netdev : port.device);
    if (name.empty() && port.guid)
        name = format_guid(*port.guid);
    else if (name.empty() && port.ip)
        name = format_ip(*port.ip);
    else if (name.empty() && port.gid)
        name = format_ip(*port.gid);
    else if (name.empty() && port.mac)
        name = format_mac(*port.mac);
    else if (name.empty() && port.lid)
        name = fmt::format("lid {}", *port.lid);
    else if (name.empty())
        return "any port";
    return port.port > 1 ? fmt::format("{}/{}", name, port.port) : name;
}

std::string port_line(const Port &port) {
    std::string line = fmt::format("  {:<24} {}", port_label(port), port.switch_id);
    if (!port.switch_port.empty())
        line += fmt::format(" port {}", port.switch_port);
    if (!port.pod.empty())
        line += fmt::format(", pod {}", port.pod);
    if (port.rail)
        line += fmt::format(", rail {}", *port.rail);
    return line + '\n';
}

// The ports of each switch, and the switches below it.
struct Contents {
    explicit Contents(const Topology &topology)
        : ports(topology.switch_count()), below(topology.switch_count()) {
        for (std::uint32_t i = 0; i < topology.port_count(); i++)
            ports[topology.switch_of({i})].push_back(i);
        for (std::uint32_t i = 0; i < topology.switch_count(); i++) {
            const Switch one = topology.switch_at(i);
            for (const std::uint32_t uplink : one.uplinks)
                below[uplink].push_back(i);
        }
    }
    std::vector<std::vector<std::uint32_t>> ports;
    std::vector<std::vector<std::uint32_t>> below;
};

std::string ports_summary(const Topology &topology, const std::vector<std::uint32_t> &ports) {
    std::vector<std::string> names;
    std::set<std::string_view> seen;
    for (const std::uint32_t index : ports) {
        const Port port = topology.port({index});
        if (port.host.empty())
            names.push_back(port_label(port));
        else if (seen.insert(port.host).second)
            names.emplace_back(port.host);
    }
    return fmt::format("{}: {}", counted(ports.size(), "port"), some_of(names));
}

class Tree {
public:
    explicit Tree(const Topology &topology)
        : topology_(topology), contents_(topology), shown_(topology.switch_count()) {}

    std::string draw() {
        for (const SwitchTier tier : TIERS) {
            for (std::uint32_t i = 0; i < topology_.switch_count(); i++) {
                const Switch one = topology_.switch_at(i);
                if (one.tier == tier && one.uplinks.empty())
                    draw_switch(i, "");
            }
        }
        return std::move(text_);
    }

private:
    void draw_switch(std::uint32_t index, const std::string &indent) {
        const Switch one = topology_.switch_at(index);
        shown_[index] = true;
        text_ += fmt::format("{}{} ({}{}{})\n", indent, one.id, switch_tier_name(one.tier),
                             one.pod.empty() ? "" : ", pod ", one.pod);
        const std::string deeper = indent + "  ";
        if (one.uplinks.size() > 1)
            text_ += fmt::format("{}{} in total\n", deeper, counted(one.uplinks.size(), "uplink"));
        if (!contents_.ports[index].empty())
            text_ += deeper + ports_summary(topology_, contents_.ports[index]) + '\n';
        std::size_t drawn_before = 0;
        for (const std::uint32_t lower : contents_.below[index]) {
            if (shown_[lower])
                drawn_before++;
            else
                draw_switch(lower, deeper); // at most four tiers deep
        }
        if (drawn_before > 0)
            text_ += fmt::format("{}and {} shown above\n", deeper, counted(drawn_before, "switch"));
    }

    const Topology &topology_;
    const Contents contents_;
    std::vector<bool> shown_;
    std::string text_;
};

} // namespace

std::string topology_counts(const Topology &topology) {
    std::map<SwitchTier, std::size_t> tiers;
    for (std::uint32_t i = 0; i < topology.switch_count(); i++)
        tiers[topology.switch_at(i).tier]++;
    std::string parts;
    for (const auto &[tier, count] : tiers)
        parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", count, switch_tier_name(tier));
    std::set<std::string_view> hosts;
    std::size_t unnamed = 0;
    for (std::uint32_t i = 0; i < topology.port_count(); i++) {
        const Port port = topology.port({i});
        if (port.host.empty())
            unnamed++;
        else
            hosts.insert(port.host);
    }
    std::string text = counted(topology.switch_count(), "switch");
    if (!parts.empty())
        text += fmt::format(" ({})", parts);
    text += fmt::format(", {} of {}", counted(topology.port_count(), "port"),
                        counted(hosts.size(), "host"));
    if (unnamed > 0)
        text += fmt::format(" ({} without a host name)", unnamed);
    return text;
}

std::string import_counts(const ImportCounts &counts) {
    return fmt::format("{} ({} with hosts), {} ({} aggregation nodes), {} ({} between switches)",
                       counted(counts.switches, "switch"), counts.switches_with_hosts,
                       counted(counts.adapters, "adapter"), counts.aggregation_nodes,
                       counted(counts.host_links + counts.switch_links, "link"),
                       counts.switch_links);
}

std::string switches_text(const Topology &topology) {
    const Contents contents(topology);
    std::string text;
    for (const SwitchTier tier : TIERS) {
        bool first = true;
        for (std::uint32_t i = 0; i < topology.switch_count(); i++) {
            const Switch one = topology.switch_at(i);
            if (one.tier != tier)
                continue;
            if (first)
                text += fmt::format("{}\n", switch_tier_name(tier));
            first = false;
            text += fmt::format("  {:<32} {}, {}, {} below{}{}\n", one.id,
                                counted(contents.ports[i].size(), "port"),
                                counted(one.uplinks.size(), "uplink"), contents.below[i].size(),
                                one.pod.empty() ? "" : ", pod ", one.pod);
        }
    }
    return text;
}

std::string tree_text(const Topology &topology) {
    return Tree(topology).draw();
}

std::string hosts_text(const Topology &topology) {
    std::map<std::string_view, std::vector<std::uint32_t>> hosts;
    for (std::uint32_t i = 0; i < topology.port_count(); i++)
        hosts[topology.port({i}).host].push_back(i);
    std::string text;
    for (const auto &[host, ports] : hosts) {
        text += fmt::format("{}\n", host.empty() ? "(no host name)" : host);
        for (const std::uint32_t index : ports)
            text += port_line(topology.port({index}));
    }
    return text;
}

std::string host_text(const Topology &topology, std::string_view host) {
    const std::vector<PortRef> refs = topology.ports_of(host);
    if (refs.empty())
        return {};
    std::string text = fmt::format("{}\n", topology.port(refs.front()).host);
    for (const PortRef ref : refs) {
        text += port_line(topology.port(ref));
        std::vector<std::string> uplinks;
        for (const std::uint32_t uplink : topology.switch_at(topology.switch_of(ref)).uplinks)
            uplinks.emplace_back(topology.switch_at(uplink).id);
        if (!uplinks.empty())
            text += fmt::format("  {:<24} below {}\n", "", some_of(uplinks));
    }
    return text;
}

} // namespace collwire::cli
