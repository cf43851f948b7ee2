// SPDX-License-Identifier: Apache-2.0
// lldpctl -f json and json0 (lldpd). json0 puts every element into a list of objects with "name"
// members; json leaves the lists of one out and makes names keys. Both are read by the same steps.
#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <set>

#include "correlate/topology/import/importer.h"
#include "correlate/topology/json_text.h"

namespace collwire::topology {

namespace {

using nlohmann::json;

// The elements of a list, or the one thing that stands for a list of one.
std::vector<const json *> elements(const json &value) {
    std::vector<const json *> list;
    if (value.is_array()) {
        for (const auto &element : value)
            list.push_back(&element);
    } else if (!value.is_null()) {
        list.push_back(&value);
    }
    return list;
}

const json *member(const json &value, const char *key) {
    const json *object = &value;
    if (value.is_array() && !value.empty())
        object = &value.front();
    if (!object->is_object())
        return nullptr;
    const auto found = object->find(key);
    return found == object->end() ? nullptr : &*found;
}

// "text", {"value": "text"} or [{"value": "text"}].
std::string text_of(const json *value) {
    if (value == nullptr)
        return {};
    if (value->is_array())
        return value->empty() ? std::string() : text_of(&value->front());
    if (value->is_object())
        return text_of(member(*value, "value"));
    return value->is_string() ? clean_name(value->get_ref<const std::string &>()) : std::string();
}

struct Identifier {
    std::string type; // "mac", "ifname", "local", ...
    std::string value;
};

Identifier identifier_of(const json *value) {
    if (value == nullptr)
        return {};
    return {text_of(member(*value, "type")), text_of(value)};
}

struct Named {
    std::string name;
    const json *content;
};

// json0: {"name": [{"value": n}], ...} or {"name": n, ...}; json: {n: {...}, ...}; nameless in
// json: the content itself, known by one of its members.
std::vector<Named> named(const json &value, const char *content_member) {
    std::vector<Named> list;
    for (const json *element : elements(value)) {
        if (!element->is_object())
            continue;
        const json *content = member(*element, content_member);
        const bool is_content =
            content != nullptr && (content->is_array() || member(*content, "type") != nullptr ||
                                   member(*content, "id") != nullptr);
        if (element->contains("name") || is_content) {
            list.push_back({text_of(member(*element, "name")), element});
            continue;
        }
        for (const auto &item : element->items()) {
            for (const json *one : elements(item.value()))
                list.push_back({clean_name(item.key()), one});
        }
    }
    return list;
}

// A neighbour that announces capabilities but is neither bridge nor router is a host, a phone or a
// management controller.
bool forwards(const json &chassis) {
    const json *capabilities = member(chassis, "capability");
    if (capabilities == nullptr)
        return true;
    for (const json *capability : elements(*capabilities)) {
        const std::string type = text_of(member(*capability, "type"));
        const json *enabled = member(*capability, "enabled");
        const bool on = enabled != nullptr &&
                        (enabled->is_boolean() ? enabled->get<bool>() : text_of(enabled) == "on");
        if (on && (type == "Bridge" || type == "Router"))
            return true;
    }
    return false;
}

std::string port_name(const json *port) {
    if (port == nullptr)
        return {};
    const Identifier id = identifier_of(member(*port, "id"));
    const std::string description = text_of(member(*port, "descr"));
    const bool address = id.type == "mac" || id.value.empty();
    return address && !description.empty() ? description : id.value;
}

class LldpctlReader {
public:
    LldpctlReader(const ImportInput &input, Fabric &fabric, Problems &problems)
        : input_(input), fabric_(fabric), problems_(problems) {}

    Result<void> read() {
        auto file = parse_json_text(input_.text, nullptr);
        if (!file)
            return std::move(file).failure();
        const json *lldp = member(*file, "lldp");
        if (lldp == nullptr)
            return error(
                ErrorKind::BadInput,
                "has no \"lldp\" member, so it is not lldpctl's output. Fix: write it with "
                "`lldpctl -f json0`");
        const json *interfaces = member(*lldp, "interface");
        if (interfaces != nullptr) {
            for (const auto &one : named(*interfaces, "chassis"))
                read_interface(one);
        }
        if (seen_.empty())
            problems_.warning(fmt::format(
                "{}: no neighbour that is a switch. Fix: see whether the NIC's firmware keeps "
                "LLDP to itself, and whether the switches send it",
                input_.name));
        return {};
    }

private:
    void warn(const std::string &interface, std::string_view what) {
        problems_.warning(fmt::format("{}: interface {}: {}", input_.name, quote(interface), what));
    }

    void read_interface(const Named &interface) {
        if (interface.name.empty())
            return warn("", "has no name and is ignored");
        const json *chassis_list = member(*interface.content, "chassis");
        if (chassis_list == nullptr)
            return warn(interface.name, "names no neighbour and is ignored");
        for (const auto &chassis : named(*chassis_list, "id")) {
            if (!chassis.content->is_object())
                continue;
            fabric_.counts.adapters++;
            if (!forwards(*chassis.content)) {
                warn(interface.name, "its neighbour " + quote(chassis.name) +
                                         " is neither bridge nor router; ignored");
                continue;
            }
            const Identifier id = identifier_of(member(*chassis.content, "id"));
            if (chassis.name.empty() && id.value.empty()) {
                warn(interface.name, "its neighbour has neither name nor id; ignored");
                continue;
            }
            if (!seen_.insert(interface.name).second) {
                warn(interface.name, "has several neighbours; the first one counts");
                continue;
            }
            add(interface, chassis.name, id.value);
        }
    }

    // A pair of switches may share one chassis id, and unnamed switches their vendor's name: only
    // both together identify a switch.
    void add(const Named &interface, const std::string &name, const std::string &id) {
        const std::string whole = name.empty() ? id : fmt::format("{} ({})", name, id);
        const auto on =
            fabric_.add_switch(name + '\n' + id, {name, name.empty() ? id : whole, whole});
        PortEntry port;
        port.host = clean_name(input_.host);
        port.netdev = interface.name;
        port.switch_port = port_name(member(*interface.content, "port"));
        fabric_.counts.host_links++;
        fabric_.add_port(on, std::move(port));
    }

    const ImportInput &input_;
    Fabric &fabric_;
    Problems &problems_;
    std::set<std::string> seen_;
};

} // namespace

bool matches_lldpctl(std::string_view text) {
    constexpr std::size_t LOOKED_AT = 65536;
    const auto first = text.find_first_not_of("\xef\xbb\xbf \t\r\n");
    return first != std::string_view::npos && text[first] == '{' &&
           text.substr(0, LOOKED_AT).find("\"lldp\"") != std::string_view::npos;
}

Result<void> read_lldpctl(const ImportInput &input, Fabric &fabric, Problems &problems) {
    return LldpctlReader(input, fabric, problems).read();
}

} // namespace collwire::topology
