// SPDX-License-Identifier: Apache-2.0
// Parses a topology file, version 1, into a Topology. Specified in docs/topology.md.
#include <algorithm>
#include <array>
#include <charconv>
#include <fmt/format.h>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "correlate/topology/builder.h"
#include "correlate/topology/json_text.h"
#include "correlate/topology/pattern.h"

namespace collwire::topology {

namespace {

using nlohmann::json;

constexpr std::uint32_t VERSION = 1;
constexpr std::uint32_t PORT_NUMBER_MAX = 65535;
constexpr std::uint32_t RAIL_MAX = 0xffff;

// One object of "switches" or "ports" while it is read.
class EntryReader {
public:
    EntryReader(const json &object, const char *list, std::size_t index, Problems &problems)
        : object_(object), list_(list), index_(index), problems_(problems) {}

    [[nodiscard]] bool ok() const { return ok_; }
    [[nodiscard]] std::string path(std::string_view field = {}) const {
        return fmt::format("{}[{}]{}{}", list_, index_, field.empty() ? "" : ".", field);
    }
    void fail(std::string_view field, std::string_view what) {
        ok_ = false;
        problems_.error(fmt::format("{}: {}", path(field), what));
    }

    bool is_object() {
        if (!object_.is_object())
            fail({}, fmt::format("is {}, not an object. Fix: write {{...}}", object_.type_name()));
        return ok_;
    }

    // null counts as absent.
    [[nodiscard]] const json *find(const char *field) const {
        const auto found = object_.find(field);
        return found == object_.end() || found->is_null() ? nullptr : &*found;
    }

    std::string text(const char *field) {
        const json *value = find(field);
        if (value == nullptr)
            return {};
        if (value->is_string())
            return value->get<std::string>();
        fail(field, fmt::format("is {}, not a string. Fix: put it in quotes", value->type_name()));
        return {};
    }

    // A number, or its text (which may hold variables).
    std::string number_text(const char *field) {
        const json *value = find(field);
        if (value == nullptr)
            return {};
        if (value->is_string())
            return value->get<std::string>();
        if (value->is_number_unsigned())
            return std::to_string(value->get<std::uint64_t>());
        fail(field, fmt::format("is {}, not a whole number. Fix: write a number from 0 up",
                                value->is_number() ? value->dump() : value->type_name()));
        return {};
    }

    void warn_unknown(std::initializer_list<std::string_view> known) {
        for (const auto &item : object_.items()) {
            if (std::find(known.begin(), known.end(), item.key()) == known.end())
                problems_.warning(
                    fmt::format("{}: key {} is not known and ignored", path(), quote(item.key())));
        }
    }

    Variables variables() {
        Variables variables;
        const json *vars = find("vars");
        if (vars == nullptr)
            return variables;
        if (!vars->is_object()) {
            fail("vars", "is not an object. Fix: write {\"i\": \"0-7\"}");
            return variables;
        }
        for (const auto &item : vars->items()) {
            if (item.value().is_string())
                note("vars",
                     variables.add_axis(item.key(), item.value().get_ref<const std::string &>()));
            else if (!item.value().is_object())
                fail("vars." + item.key(),
                     "is neither a list of numbers such as \"0-7\" nor an object");
        }
        return variables;
    }

    // After the ranges in brackets are known.
    void computed_variables(Variables &variables) {
        const json *vars = find("vars");
        if (vars == nullptr || !vars->is_object())
            return;
        for (const auto &item : vars->items()) {
            if (item.value().is_object())
                computed_variable(item.key(), item.value(), variables);
        }
    }

    Template compile(const char *field, std::string_view text, const char *bracket_variable,
                     const Variables &variables) {
        auto compiled = Template::compile(text, bracket_variable, variables);
        if (compiled)
            return *std::move(compiled);
        fail(field, compiled.failure().message);
        return {};
    }

    void note(const char *field, const Result<void> &result) {
        if (!result)
            fail(field, result.failure().message);
    }

private:
    void computed_variable(const std::string &name, const json &rule, Variables &variables) {
        const std::string field = "vars." + name;
        const auto of = rule.find("of");
        const auto every = rule.find("every");
        const auto within = rule.find("within");
        const auto start = rule.find("start");
        const auto count = [&](auto value) {
            return value != rule.end() && value->is_number_unsigned();
        };
        const bool divide = every != rule.end();
        const std::size_t known = 2 + (start == rule.end() ? 0U : 1U);
        if (of == rule.end() || !of->is_string() || !count(divide ? every : within) ||
            rule.size() != known || (start != rule.end() && !count(start)))
            return fail(field,
                        "is not a rule. Fix: write {\"of\": \"n\", \"every\": 32} or {\"of\": "
                        "\"n\", \"within\": 32}, with \"start\" if it does not begin at 0");
        const auto by = (divide ? every : within)->template get<std::uint64_t>();
        const auto first = start == rule.end() ? 0 : start->get<std::uint64_t>();
        const auto added =
            variables.add_computed(name, of->get_ref<const std::string &>(), divide, by, first);
        if (!added)
            fail(field, added.failure().message);
    }

    const json &object_;
    const char *list_;
    std::size_t index_;
    Problems &problems_;
    bool ok_ = true;
};

std::optional<std::uint32_t> parse_unsigned(std::string_view text, std::uint32_t most) {
    int base = 10;
    if (text.starts_with("0x") || text.starts_with("0X")) {
        text.remove_prefix(2);
        base = 16;
    }
    std::uint32_t value = 0;
    const auto [stop, failure] =
        std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (text.empty() || failure != std::errc{} || stop != text.data() + text.size() || value > most)
        return std::nullopt;
    return value;
}

class FileReader {
public:
    FileReader(std::string_view text, const json &file, const Limits &limits, Problems &problems)
        : text_(text), file_(file), limits_(limits), problems_(problems),
          builder_(limits, problems) {}

    std::optional<Topology> read() {
        if (!check_header())
            return std::nullopt;
        each("switches", [&](const json &entry, std::size_t i) { read_switch(entry, i); });
        if (builder_.within_limits())
            builder_.link_switches();
        each("ports", [&](const json &entry, std::size_t i) { read_port(entry, i); });
        return builder_.finish();
    }

private:
    bool check_header() {
        const auto fail = [&](std::string message) {
            problems_.error(std::move(message));
            return false;
        };
        if (!file_.is_object())
            return fail(fmt::format(
                "the file holds {}, not an object. Fix: this is not a collwire topology file; "
                "`collwire topology import` reads other formats",
                file_.type_name()));
        const auto version = file_.find("collwire_topology");
        if (version == file_.end())
            return fail(
                "\"collwire_topology\" is missing, so this is not a collwire topology file. Fix: "
                "add "
                "\"collwire_topology\": 1, or use `collwire topology import` for other formats");
        const std::string place = place_of_key(text_, "collwire_topology");
        const std::string where =
            "collwire_topology" + (place.empty() ? std::string() : " at " + place);
        if (!version->is_number_unsigned() || version->get<std::uint64_t>() == 0)
            return fail(where + ": not a version number. Fix: write 1");
        if (version->get<std::uint64_t>() > VERSION)
            return fail(fmt::format("{}: version {} is newer than this program, which reads "
                                    "version {}. Fix: use a newer collwire",
                                    where, version->get<std::uint64_t>(), VERSION));
        for (const auto &item : file_.items()) {
            constexpr std::array<std::string_view, 5> known{"collwire_topology", "switches",
                                                            "ports", "source", "generated"};
            if (std::find(known.begin(), known.end(), item.key()) == known.end())
                problems_.warning(
                    fmt::format("top level: key {} is not known and ignored", quote(item.key())));
        }
        builder_.set_origin(header_text("source"), header_text("generated"));
        return true;
    }

    std::string header_text(const char *field) {
        const auto found = file_.find(field);
        if (found == file_.end() || found->is_null())
            return {};
        if (!found->is_string()) {
            problems_.error(fmt::format("{}: is {}, not a string. Fix: put it in quotes", field,
                                        found->type_name()));
            return {};
        }
        return found->get<std::string>();
    }

    template <typename Read> void each(const char *list, const Read &read) {
        const auto found = file_.find(list);
        if (found == file_.end()) {
            problems_.error(
                fmt::format("\"{}\" is missing. Fix: add it, [] for an empty list", list));
            return;
        }
        if (!found->is_array()) {
            problems_.error(
                fmt::format("{}: is {}, not a list. Fix: write [...]", list, found->type_name()));
            return;
        }
        for (std::size_t i = 0; i < found->size() && builder_.within_limits(); i++)
            read((*found)[i], i);
    }

    bool check_size(EntryReader &entry, std::uint64_t count, std::size_t limit, const char *what) {
        if (count > limit)
            entry.fail({}, fmt::format("its ranges stand for more than {} {}. Fix: narrow them",
                                       limit, what));
        return entry.ok();
    }

    bool check_all_used(EntryReader &entry, const Variables &variables, std::uint32_t used) {
        for (std::size_t i = 0; i < variables.axes().size(); i++) {
            if ((used >> i & 1) == 0)
                entry.fail(
                    "vars",
                    fmt::format("{} is not used, so entries would repeat. Fix: use it or remove it",
                                quote(variables.axes()[i].name())));
        }
        return entry.ok();
    }

    void read_switch(const json &object, std::size_t index) {
        EntryReader entry(object, "switches", index, problems_);
        if (!entry.is_object())
            return;
        entry.warn_unknown({"id", "tier", "pod", "uplinks", "vars"});
        const std::string id = entry.text("id");
        const std::string tier_text = entry.text("tier");
        const std::string pod = entry.text("pod");
        const auto tier = parse_switch_tier(tier_text);
        if (entry.ok() && id.empty())
            entry.fail("id", "is missing. Fix: name the switch");
        if (entry.ok() && !tier)
            entry.fail("tier",
                       fmt::format("{} is not a tier. Fix: use leaf, spine, superspine or core",
                                   quote(tier_text)));
        const std::vector<std::string> uplinks = read_uplinks(entry);
        Variables variables = entry.variables();
        entry.note("id", Template::add_brackets(id, "n", variables));
        entry.computed_variables(variables);
        const Template id_template = entry.compile("id", id, "n", variables);
        const Template pod_template = entry.compile("pod", pod, "", variables);
        std::vector<Template> uplink_templates;
        std::uint32_t used = id_template.axes();
        for (const auto &uplink : uplinks) {
            uplink_templates.push_back(entry.compile("uplinks", uplink, "", variables));
            used |= uplink_templates.back().axes();
        }
        if (entry.ok() && (pod_template.axes() & ~id_template.axes()) != 0)
            entry.fail("pod", "uses a range that \"id\" does not use. Fix: use it in both");
        if (!entry.ok() || !check_all_used(entry, variables, used) ||
            !check_size(entry, combinations(variables, id_template.axes(), limits_.switches),
                        limits_.switches, "switches") ||
            !check_size(entry, uplinks_of(id_template, uplink_templates, variables),
                        limits_.uplinks, "uplinks"))
            return;
        std::vector<std::uint64_t> positions(variables.axes().size());
        do {
            SwitchEntry one;
            one.id = id_template.render(variables, positions);
            one.tier = *tier;
            one.pod = pod_template.render(variables, positions);
            for (const auto &uplink : uplink_templates) {
                const std::uint32_t inner = uplink.axes() & ~id_template.axes();
                do {
                    one.uplinks.push_back(uplink.render(variables, positions));
                } while (next_combination(variables, inner, positions));
            }
            builder_.add_switch(std::move(one), index);
        } while (builder_.within_limits() &&
                 next_combination(variables, id_template.axes(), positions));
    }

    // Of all switches of an entry; more than the limit if it exceeds that.
    [[nodiscard]] std::uint64_t uplinks_of(const Template &id, const std::vector<Template> &uplinks,
                                           const Variables &variables) const {
        std::uint64_t sum = 0;
        for (const Template &uplink : uplinks) {
            sum += combinations(variables, id.axes() | uplink.axes(), limits_.uplinks);
            if (sum > limits_.uplinks)
                break;
        }
        return sum;
    }

    std::vector<std::string> read_uplinks(EntryReader &entry) {
        std::vector<std::string> uplinks;
        const json *list = entry.find("uplinks");
        if (list == nullptr)
            return uplinks;
        if (!list->is_array()) {
            entry.fail("uplinks", "is not a list. Fix: write [\"spine0\"]");
            return uplinks;
        }
        for (std::size_t i = 0; i < list->size(); i++) {
            if ((*list)[i].is_string())
                uplinks.push_back((*list)[i].get<std::string>());
            else
                entry.fail(fmt::format("uplinks[{}]", i),
                           "is not a string. Fix: give the id of a switch");
        }
        return uplinks;
    }

    void read_port(const json &object, std::size_t index) {
        constexpr std::size_t FIELD_COUNT = 13;
        struct Field {
            const char *name;
            std::string text;
            Template compiled;
        };
        EntryReader entry(object, "ports", index, problems_);
        if (!entry.is_object())
            return;
        entry.warn_unknown({"host", "device", "port", "netdev", "ip", "gid", "guid", "mac", "lid",
                            "lmc", "switch", "switch_port", "rail", "vars"});
        std::array<Field, FIELD_COUNT> fields{{{"host", entry.text("host"), {}},
                                               {"device", entry.text("device"), {}},
                                               {"netdev", entry.text("netdev"), {}},
                                               {"ip", entry.text("ip"), {}},
                                               {"gid", entry.text("gid"), {}},
                                               {"guid", entry.text("guid"), {}},
                                               {"mac", entry.text("mac"), {}},
                                               {"switch", entry.text("switch"), {}},
                                               {"switch_port", entry.text("switch_port"), {}},
                                               {"port", entry.number_text("port"), {}},
                                               {"lid", entry.number_text("lid"), {}},
                                               {"lmc", entry.number_text("lmc"), {}},
                                               {"rail", entry.number_text("rail"), {}}}};
        Variables variables = entry.variables();
        entry.note("host", Template::add_brackets(fields[0].text, "n", variables));
        entry.note("device", Template::add_brackets(fields[1].text, "i", variables));
        entry.computed_variables(variables);
        std::uint32_t used = 0;
        for (std::size_t i = 0; i < FIELD_COUNT; i++) {
            const char *bracket_variable = i == 0 ? "n" : i == 1 ? "i" : "";
            fields[i].compiled =
                entry.compile(fields[i].name, fields[i].text, bracket_variable, variables);
            used |= fields[i].compiled.axes();
        }
        if (!entry.ok() || !check_all_used(entry, variables, used) ||
            !check_size(entry, combinations(variables, used, limits_.ports), limits_.ports,
                        "ports"))
            return;
        std::vector<std::uint64_t> positions(variables.axes().size());
        do {
            const auto text = [&](std::size_t i) {
                return fields[i].compiled.render(variables, positions);
            };
            const auto number = [&](std::size_t i,
                                    std::uint32_t most) -> std::optional<std::uint32_t> {
                const std::string digits = text(i);
                if (digits.empty())
                    return std::nullopt;
                const auto value = parse_unsigned(digits, most);
                if (!value)
                    entry.fail(fields[i].name,
                               fmt::format("{} is not a whole number up to {}. Fix: correct it",
                                           quote(digits), most));
                return value;
            };
            PortEntry one;
            std::size_t i = 0;
            for (std::string *member : {&one.host, &one.device, &one.netdev, &one.ip, &one.gid,
                                        &one.guid, &one.mac, &one.switch_id, &one.switch_port})
                *member = text(i++);
            one.port = number(9, PORT_NUMBER_MAX);
            one.lid = number(10, 0xffff);
            one.lmc = number(11, 0xff);
            one.rail = number(12, RAIL_MAX);
            if (!entry.ok())
                return;
            builder_.add_port(one, index);
        } while (builder_.within_limits() && next_combination(variables, used, positions));
    }

    std::string_view text_;
    const json &file_;
    const Limits &limits_;
    Problems &problems_;
    Builder builder_;
};

} // namespace

Checked check_topology(std::string_view text, const Limits &limits) {
    Checked checked;
    auto file = parse_json_text(text, &checked.problems);
    if (!file) {
        checked.problems.error(file.failure().message);
        return checked;
    }
    checked.topology = FileReader(text, *file, limits, checked.problems).read();
    return checked;
}

Result<Topology> parse_topology(std::string_view text, const Limits &limits) {
    Checked checked = check_topology(text, limits);
    if (checked.topology)
        return *std::move(checked.topology);
    std::string message = checked.problems.first_error();
    if (checked.problems.errors() > 1)
        message +=
            fmt::format(" ({} more: see `collwire topology check`)", checked.problems.errors() - 1);
    return error(ErrorKind::BadInput, std::move(message));
}

} // namespace collwire::topology
