// SPDX-License-Identifier: Apache-2.0
#include "correlate/topology/import/fabric.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <unordered_set>

#include "base/utf8.h"

namespace collwire::topology {

namespace {

constexpr int NO_LEVEL = -1;
constexpr int TOP_LEVEL = 3; // core

} // namespace

std::string clean_name(std::string_view text) {
    constexpr std::size_t NAME_MAX_BYTES = 200;
    std::string name;
    while (!text.empty()) {
        const std::size_t length = utf8_sequence_length(text);
        if (name.size() + std::max<std::size_t>(length, 1) > NAME_MAX_BYTES)
            break;
        const auto byte = static_cast<unsigned char>(text[0]);
        if (length == 0 || byte < 0x20 || byte == 0x7f)
            name += '?';
        else
            name += text.substr(0, length);
        text.remove_prefix(std::max<std::size_t>(length, 1));
    }
    const auto first = name.find_first_not_of(' ');
    if (first == std::string::npos)
        return {};
    return name.substr(first, name.find_last_not_of(' ') - first + 1);
}

std::uint32_t Fabric::add_switch(std::string_view key, std::vector<std::string> names) {
    const auto [known, added] = by_key_.emplace(key, static_cast<std::uint32_t>(switches_.size()));
    if (added) {
        switches_.emplace_back();
        switches_.back().names = std::move(names);
    }
    return known->second;
}

void Fabric::add_link(std::uint32_t a, std::uint32_t a_port, std::uint32_t b,
                      std::uint32_t b_port) {
    LinkEnd one{a, a_port};
    LinkEnd other{b, b_port};
    if (other < one)
        std::swap(one, other);
    if (!links_.emplace(one, other).second)
        return;
    if (a == b)
        return;
    for (const auto &[from, to] : {std::pair{a, b}, std::pair{b, a}}) {
        switches_[from].neighbours[to]++;
        switches_[from].cables++;
    }
}

void Fabric::add_port(std::uint32_t on_switch, PortEntry entry) {
    switches_[on_switch].hosts++;
    ports_.emplace_back(on_switch, std::move(entry));
}

// The first name of each switch that no other switch could claim as well.
std::vector<std::string> Fabric::unique_ids() const {
    std::unordered_map<std::string, std::size_t> claims;
    for (const auto &node : switches_) {
        std::unordered_set<std::string_view> own;
        for (const auto &name : node.names) {
            if (own.insert(name).second)
                claims[name]++;
        }
    }
    std::vector<std::string> ids;
    ids.reserve(switches_.size());
    for (const auto &node : switches_) {
        const auto unique =
            std::find_if(node.names.begin(), node.names.end(),
                         [&](const auto &name) { return !name.empty() && claims[name] == 1; });
        ids.push_back(unique == node.names.end() ? fmt::format("switch #{}", ids.size()) : *unique);
    }
    return ids;
}

// In a tree of switches the levels alternate between two colours. The colour with fewer hosts has
// no leaves: a switch of it with more cables to switches than to hosts is a spine with a directly
// cabled host.
void Fabric::drop_minor_colour(const std::vector<std::uint32_t> &component,
                               const std::vector<int> &colour, std::vector<bool> &leaf) const {
    std::array<std::size_t, 2> hosts{};
    for (const std::uint32_t node : component) {
        hosts[static_cast<std::size_t>(colour[node])] += switches_[node].hosts;
        for (const auto &[neighbour, cables] : switches_[node].neighbours) {
            if (colour[neighbour] == colour[node])
                return; // not a tree
        }
    }
    if (hosts[0] == hosts[1])
        return;
    const int minor = hosts[0] < hosts[1] ? 0 : 1;
    for (const std::uint32_t node : component) {
        if (colour[node] == minor && switches_[node].cables > switches_[node].hosts)
            leaf[node] = false;
    }
}

std::vector<bool> Fabric::find_leaves() const {
    std::vector<bool> leaf(switches_.size());
    for (std::size_t i = 0; i < switches_.size(); i++)
        leaf[i] = switches_[i].hosts > 0;
    std::vector<int> colour(switches_.size(), -1);
    for (std::uint32_t start = 0; start < switches_.size(); start++) {
        if (colour[start] >= 0)
            continue;
        std::vector<std::uint32_t> component{start};
        colour[start] = 0;
        for (std::size_t i = 0; i < component.size(); i++) {
            const std::uint32_t node = component[i];
            for (const auto &[neighbour, cables] : switches_[node].neighbours) {
                if (colour[neighbour] < 0) {
                    colour[neighbour] = 1 - colour[node];
                    component.push_back(neighbour);
                }
            }
        }
        drop_minor_colour(component, colour, leaf);
    }
    return leaf;
}

// The number of cables to the nearest leaf.
std::vector<int> Fabric::levels(const std::vector<bool> &leaf) const {
    std::vector<int> level(switches_.size(), NO_LEVEL);
    std::vector<std::uint32_t> reached;
    for (std::uint32_t i = 0; i < switches_.size(); i++) {
        if (leaf[i]) {
            level[i] = 0;
            reached.push_back(i);
        }
    }
    for (std::size_t i = 0; i < reached.size(); i++) {
        for (const auto &[neighbour, cables] : switches_[reached[i]].neighbours) {
            if (level[neighbour] == NO_LEVEL) {
                level[neighbour] = level[reached[i]] + 1;
                reached.push_back(neighbour);
            }
        }
    }
    return level;
}

Document Fabric::to_document(Problems &problems) {
    Document document;
    document.source = source;
    document.generated = generated;
    const std::vector<std::string> ids = unique_ids();
    const std::vector<int> level = levels(find_leaves());
    std::size_t no_hosts_below = 0;
    std::size_t sideways = 0;
    std::size_t self_cables = 0;
    const auto tier = [&](std::uint32_t i) { return std::min(level[i], TOP_LEVEL); };
    for (const auto &[one, other] : links_)
        self_cables += one.first == other.first ? 1 : 0;
    for (std::uint32_t i = 0; i < switches_.size(); i++) {
        counts.switches_with_hosts += switches_[i].hosts > 0 ? 1 : 0;
        if (level[i] == NO_LEVEL) {
            no_hosts_below++;
            continue;
        }
        SwitchEntry entry;
        entry.id = ids[i];
        entry.tier = static_cast<SwitchTier>(tier(i));
        for (const auto &[neighbour, cables] : switches_[i].neighbours) {
            if (tier(neighbour) > tier(i))
                entry.uplinks.push_back(ids[neighbour]);
            else if (tier(neighbour) == tier(i) && neighbour > i)
                sideways += cables;
        }
        document.switches.push_back(std::move(entry));
    }
    for (auto &[on_switch, port] : ports_) {
        port.switch_id = ids[on_switch];
        document.ports.push_back(std::move(port));
    }
    counts.switches = switches_.size();
    counts.switch_links = links_.size();
    if (self_cables > 0)
        problems.warning(
            fmt::format("{} cables lead back into the same switch and are ignored", self_cables));
    if (no_hosts_below > 0)
        problems.warning(
            fmt::format("{} switches lead to no host and are left out", no_hosts_below));
    if (sideways > 0)
        problems.warning(fmt::format(
            "{} cables join switches of one tier and are left out: traffic over them is of "
            "unknown tier. Fix: correct the tiers in the result by hand",
            sideways));
    return document;
}

} // namespace collwire::topology
