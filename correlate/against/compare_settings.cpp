// SPDX-License-Identifier: Apache-2.0
// NCCL's version and parameters, and what it chose for equal operations.
#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "correlate/against/parts.h"
#include "correlate/report/units.h"

namespace collwire::against {
namespace {

constexpr std::size_t MOST_VALUES = 4;

std::string set_text(const std::set<std::string> &values) {
    return list_text({values.begin(), values.end()}, MOST_VALUES);
}

std::set<std::string> versions_of(const RunRows &run) {
    std::set<std::string> versions;
    for (const rows::RankRow &row : run.of<rows::RankRow>())
        if (row.nccl_version)
            versions.insert(report::printable(*row.nccl_version));
    return versions;
}

using Parameters = std::map<std::string, std::set<std::string>>; // values by name

Parameters parameters_of(const RunRows &run, const std::set<std::uint64_t> &comms) {
    Parameters parameters;
    for (const rows::ParameterRow &row : run.of<rows::ParameterRow>())
        if (comms.contains(row.comm))
            parameters[row.name].insert(row.text);
    return parameters;
}

void compare_parameters(const TwoRuns &runs, Comparison &result) {
    std::set<std::uint64_t> of_a, of_b;
    for (const CommPair &pair : result.matches.pairs) {
        of_a.insert(pair.a);
        of_b.insert(pair.b);
    }
    const Parameters a = parameters_of(runs.a, of_a), b = parameters_of(runs.b, of_b);
    if (a.empty() != b.empty())
        result.not_compared.emplace_back(
            "NCCL's parameters: they are in one of the two runs alone");
    for (const auto &[name, values] : a) {
        const auto before = b.find(name);
        if (before != b.end() && before->second != values)
            result.differences.push_back(
                {.topic = Topic::Settings,
                 .code = "parameter",
                 .sentence =
                     fmt::format("NCCL's parameter {}: {}, before {}", report::printable(name),
                                 set_text(values), set_text(before->second))});
    }
}

// Of more than half of the operations; null: none, or not known.
const Choice *usual_choice(const OperationSide &side) {
    for (const auto &[choice, count] : side.choices)
        if (choice.is_known() && count * 2 > side.count)
            return &choice;
    return nullptr;
}

std::string change_text(const Choice &a, const Choice &b) {
    std::vector<std::string> texts;
    const auto add = [&](std::string_view what, const std::string &now, const std::string &before) {
        if (now != before && !now.empty() && !before.empty())
            texts.push_back(fmt::format("{} {}, before {}", what, now, before));
    };
    add("algorithm", a.algorithm, b.algorithm);
    add("protocol", a.protocol, b.protocol);
    if (a.channels != 0 && b.channels != 0)
        add("channels", std::to_string(a.channels), std::to_string(b.channels));
    return list_text(texts, texts.size());
}

void compare_choices(Comparison &result) {
    std::map<std::string, std::vector<std::uint64_t>> comms; // by sentence
    for (const OperationGroup &group : result.groups) {
        const Choice *a = usual_choice(group.a), *b = usual_choice(group.b);
        if (a == nullptr || b == nullptr)
            continue;
        if (const std::string change = change_text(*a, *b); !change.empty())
            comms[fmt::format("NCCL chose for {}: {}", group_text(group), change)].push_back(
                result.matches.pairs[group.pair].a);
    }
    for (auto &[sentence, of] : comms)
        result.differences.push_back({.topic = Topic::Settings,
                                      .code = "choice",
                                      .sentence = fmt::format("{} ({})", sentence, comms_text(of)),
                                      .comms = of});
}

} // namespace

void compare_settings(const TwoRuns &runs, Comparison &result) {
    const std::set<std::string> a = versions_of(runs.a), b = versions_of(runs.b);
    if (a != b && !a.empty() && !b.empty())
        result.differences.push_back(
            {.topic = Topic::Settings,
             .code = "nccl_version",
             .sentence = fmt::format("NCCL {}, before {}", set_text(a), set_text(b))});
    compare_parameters(runs, result);
    compare_choices(result);
}

} // namespace collwire::against
