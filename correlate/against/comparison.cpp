// SPDX-License-Identifier: Apache-2.0
#include "correlate/against/comparison.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "correlate/against/parts.h"
#include "correlate/report/units.h"

namespace collwire::against {

std::string_view topic_name(Topic topic) {
    switch (topic) {
    case Topic::Ranks:
        return "ranks";
    case Topic::Settings:
        return "settings";
    case Topic::Paths:
        return "paths";
    case Topic::Work:
        return "work";
    case Topic::Times:
        return "times";
    case Topic::Recording:
        break;
    }
    return "recording";
}

std::string_view metric_name(Metric metric) {
    switch (metric) {
    case Metric::Time:
        return "time";
    case Metric::Spread:
        return "spread";
    case Metric::Transfer:
        return "transfer";
    case Metric::Interval:
        break;
    }
    return "interval";
}

std::string_view verdict_name(VerdictCode code) {
    switch (code) {
    case VerdictCode::NotComparable:
        return "not_comparable";
    case VerdictCode::Alike:
        return "alike";
    case VerdictCode::Different:
        return "different";
    case VerdictCode::Faster:
        return "faster";
    case VerdictCode::Slower:
        break;
    }
    return "slower";
}

std::string comm_text(const CommPair &pair) {
    const std::string label = label_of(pair);
    return fmt::format("comm {}{}{}", pair.a, label.empty() ? "" : " ", label);
}

std::string list_text(const std::vector<std::string> &names, std::size_t most) {
    std::string text;
    const std::size_t n = std::min(names.size(), most);
    for (std::size_t i = 0; i < n; ++i)
        text += (i == 0 ? "" : ", ") + names[i];
    return names.size() > n ? fmt::format("{} and {} more", text, names.size() - n) : text;
}

std::string comms_text(const std::vector<std::uint64_t> &comms) {
    std::vector<std::string> names;
    for (const std::uint64_t comm : std::set(comms.begin(), comms.end()))
        names.push_back(std::to_string(comm));
    return "comm " + list_text(names, 6);
}

std::string group_text(const OperationGroup &group) {
    return report::printable(group.op) +
           (group.size_bytes ? fmt::format(" {}{}", report::human_bytes(*group.size_bytes),
                                           group.is_size_class ? " or more" : "")
                             : "");
}

std::string ns_text(double ns) {
    return report::short_duration(static_cast<std::uint64_t>(std::llround(std::max(ns, 0.0))));
}

bool has_all_ranks(const RunRows &run) {
    return std::ranges::all_of(
        run.of<rows::CommunicatorRow>(), [](const rows::CommunicatorRow &row) {
            return static_cast<std::int64_t>(row.ranks_captured) >= row.n_ranks;
        });
}

bool has_lost_operations(const RunRows &run) {
    return !run.of<rows::LossRow>().empty();
}

} // namespace collwire::against
