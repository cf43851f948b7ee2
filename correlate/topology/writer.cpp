// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "correlate/topology/document.h"

namespace collwire::topology {

namespace {

using Json = nlohmann::ordered_json;

// Doubles the characters that are special in a pattern, so that every name is read back unchanged.
std::string escaped(std::string_view text, bool brackets) {
    std::string out;
    for (const char c : text) {
        out += c;
        if (c == '{' || c == '}' || (c == '[' && brackets))
            out += c;
    }
    return out;
}

void put(Json &entry, const char *key, const std::string &text, bool brackets = false) {
    if (!text.empty())
        entry[key] = escaped(text, brackets);
}

void put(Json &entry, const char *key, const std::optional<std::uint32_t> &number) {
    if (number)
        entry[key] = *number;
}

} // namespace

std::string_view switch_tier_name(SwitchTier tier) {
    switch (tier) {
    case SwitchTier::Leaf:
        return "leaf";
    case SwitchTier::Spine:
        return "spine";
    case SwitchTier::Superspine:
        return "superspine";
    case SwitchTier::Core:
        break;
    }
    return "core";
}

std::optional<SwitchTier> parse_switch_tier(std::string_view name) {
    for (const auto tier :
         {SwitchTier::Leaf, SwitchTier::Spine, SwitchTier::Superspine, SwitchTier::Core}) {
        if (switch_tier_name(tier) == name)
            return tier;
    }
    return std::nullopt;
}

std::string to_json(const Document &document) {
    Json file;
    file["collwire_topology"] = 1;
    if (!document.source.empty())
        file["source"] = document.source;
    if (!document.generated.empty())
        file["generated"] = document.generated;
    file["switches"] = Json::array();
    for (const auto &one : document.switches) {
        Json entry;
        entry["id"] = escaped(one.id, true);
        entry["tier"] = switch_tier_name(one.tier);
        put(entry, "pod", one.pod);
        if (!one.uplinks.empty()) {
            entry["uplinks"] = Json::array();
            for (const auto &uplink : one.uplinks)
                entry["uplinks"].push_back(escaped(uplink, false));
        }
        file["switches"].push_back(std::move(entry));
    }
    file["ports"] = Json::array();
    for (const auto &port : document.ports) {
        Json entry = Json::object();
        put(entry, "host", port.host, true);
        put(entry, "device", port.device, true);
        put(entry, "port", port.port);
        put(entry, "netdev", port.netdev);
        put(entry, "ip", port.ip);
        put(entry, "gid", port.gid);
        put(entry, "guid", port.guid);
        put(entry, "mac", port.mac);
        put(entry, "lid", port.lid);
        put(entry, "lmc", port.lmc);
        put(entry, "switch", port.switch_id);
        put(entry, "switch_port", port.switch_port);
        put(entry, "rail", port.rail);
        file["ports"].push_back(std::move(entry));
    }
    // One entry per line, for people and diffs.
    std::string text = "{\n";
    for (auto item = file.begin(); item != file.end(); ++item) {
        text += "  " + Json(item.key()).dump() + ": ";
        if (item->is_array() && !item->empty()) {
            text += "[\n";
            for (std::size_t i = 0; i < item->size(); i++) {
                text += "    " + (*item)[i].dump(-1, ' ', false, Json::error_handler_t::replace);
                text += i + 1 < item->size() ? ",\n" : "\n";
            }
            text += "  ]";
        } else {
            text += item->dump(-1, ' ', false, Json::error_handler_t::replace);
        }
        text += std::next(item) == file.end() ? "\n" : ",\n";
    }
    return text + "}\n";
}

} // namespace collwire::topology
