// SPDX-License-Identifier: Apache-2.0
// One screen: what a site gets, what not, and what to change, the cheapest change first.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/exit_status.h"
#include "userspace/doctor/report.h"
#include "userspace/doctor/text.h"

namespace collwire::doctor {
namespace {

constexpr std::size_t LABEL_COLUMNS = 16;
constexpr std::size_t EFFECT_COLUMN = 13;

struct Section {
    FixCost cost;
    std::string_view title;
};

constexpr std::array SECTIONS = {
    Section{FixCost::Command, "Now, with a command"},
    Section{FixCost::Start, "Start or install something differently"},
    Section{FixCost::Reboot, "Reboot the node"},
    Section{FixCost::Vendor, "Another build, driver, device or cable"},
};

// Findings with the same fix are one change.
struct Change {
    std::vector<std::string> names;
    FixCost cost = FixCost::Nothing; // of the first finding, which the others follow from
    const Check *worst = nullptr;
};

std::vector<Change> changes(const DoctorReport &report) {
    std::vector<Change> all;
    for (const Check &check : report.checks) {
        if (check.state == CheckState::Ok || check.fix.empty())
            continue;
        const auto same = std::ranges::find_if(
            all, [&](const Change &change) { return change.worst->fix == check.fix; });
        if (same == all.end()) {
            all.push_back({{check.name}, entry_of(check.code).cost, &check});
            continue;
        }
        same->names.push_back(check.name);
        if (check.state > same->worst->state)
            same->worst = &check;
    }
    std::ranges::stable_sort(all, [](const Change &left, const Change &right) {
        return left.worst->state > right.worst->state;
    });
    return all;
}

// At the end of a clause where there is one; `--all` prints the whole.
std::string cut(std::string text, std::size_t columns) {
    if (text.size() <= columns)
        return text;
    for (const std::string_view end : {"; ", ". ", ": ", ", "}) {
        const std::size_t place = text.rfind(end, columns - 1);
        if (place != std::string::npos && place > columns / 2)
            return text.substr(0, place);
    }
    text.resize(columns - 3);
    return text + "...";
}

std::string names_of(const Change &change) {
    const auto &names = change.names;
    if (names.size() <= 2)
        return names.size() == 1 ? names[0] : names[0] + ", " + names[1];
    return fmt::format("{} and {} more", names[0], names.size() - 1);
}

void add_sources(std::string &out, const DoctorReport &report, CheckState state,
                 std::string_view label) {
    std::string list;
    for (const SourceOutlook &source : report.sources)
        if (source.state == state)
            list += (list.empty() ? "" : "; ") + source.what;
    if (!list.empty())
        out += fmt::format("{:<{}}", label, LABEL_COLUMNS) + wrapped(list, LABEL_COLUMNS);
}

std::string list_of_changes(const DoctorReport &report, bool colour) {
    const std::vector<Change> all = changes(report);
    std::string out;
    for (const Section &section : SECTIONS) {
        bool has_title = false;
        for (const Change &change : all) {
            if (change.cost != section.cost)
                continue;
            if (!has_title)
                out += fmt::format("  {}\n", section.title);
            has_title = true;
            out += "    " + state_word(change.worst->state, colour) + " " +
                   cut(fmt::format("{}: {}", names_of(change), change.worst->effect),
                       TEXT_COLUMNS - EFFECT_COLUMN) +
                   "\n" + std::string(EFFECT_COLUMN, ' ') +
                   "fix: " + wrapped(change.worst->fix, EFFECT_COLUMN + 5);
        }
    }
    return out;
}

void add_rest(std::string &out, const DoctorReport &report) {
    std::string names;
    for (const Check &check : report.checks)
        if (check.state != CheckState::Ok &&
            (check.fix.empty() || entry_of(check.code).cost == FixCost::Nothing))
            names += (names.empty() ? "" : ", ") + check.name;
    if (!names.empty())
        out +=
            fmt::format("{:<{}}", "No change for", LABEL_COLUMNS) + wrapped(names, LABEL_COLUMNS);
}

} // namespace

std::string render_screen(const DoctorReport &report, bool colour) {
    std::string out = fmt::format("collwire doctor: {}, Linux {}\n\n", report.host, report.kernel);
    add_sources(out, report, CheckState::Ok, "You get");
    add_sources(out, report, CheckState::Limited, "With limits");
    add_sources(out, report, CheckState::Missing, "You do not get");
    const std::string list = list_of_changes(report, colour);
    if (!list.empty())
        out += "\nWhat to change, the cheapest first\n" + list;
    add_rest(out, report);
    return out + "\n" + verdict(report) + "\nEvery check: collwire doctor --all\n";
}

} // namespace collwire::doctor
