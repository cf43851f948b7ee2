// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <fmt/format.h>

#include "correlate/against/parts.h"
#include "correlate/against/render.h"
#include "correlate/report/table.h"
#include "correlate/report/units.h"

namespace collwire::against {
namespace {

using report::Align;
using report::Table;

constexpr std::size_t MOST_DIFFERENCES = 40;

// Breaks at spaces; lines but the first begin with `indent` of them.
std::string wrapped(const std::string &text, std::size_t width, std::size_t indent) {
    std::string out;
    std::size_t column = indent;
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find(' ', begin), text.size());
        if (begin != 0) {
            if (column + 1 + (end - begin) > width) {
                out += '\n' + std::string(indent, ' ');
                column = indent;
            } else {
                out += ' ';
                ++column;
            }
        }
        out += text.substr(begin, end - begin);
        column += end - begin;
        begin = end + 1;
    }
    return out;
}

void put_line(std::string &text, std::string_view name, const std::string &line,
              std::size_t width) {
    constexpr std::size_t INDENT = 14;
    text += fmt::format("  {:<12}{}\n", name, wrapped(line, width, INDENT));
}

std::string run_text(const RunSummary &run) {
    std::string text =
        run.begin_ns && run.end_ns
            ? fmt::format("{} to {}", report::utc(*run.begin_ns), report::utc(*run.end_ns))
            : std::string("no recording is used");
    text += fmt::format("; {} of {} ranks on {} host(s), {} communicator(s), {} operations",
                        run.ranks_captured, run.n_ranks, run.hosts.size(), run.communicators,
                        report::grouped(run.operations));
    if (!run.nccl_versions.empty())
        text += ", NCCL " + report::printable(list_text(run.nccl_versions, 3));
    if (run.lost_records != 0)
        text += fmt::format(", {} records lost", report::grouped(run.lost_records));
    return text;
}

std::string choice_text(const OperationSide &side) {
    if (side.count == 0)
        return "-";
    const auto most =
        std::ranges::max_element(side.choices, {}, [](const auto &entry) { return entry.second; });
    const Choice &choice = most->first;
    if (!choice.is_known())
        return "n/a";
    return fmt::format("{} {}{}{}", choice.algorithm, choice.protocol,
                       choice.channels == 0 ? "" : fmt::format(" {}", choice.channels),
                       side.choices.size() > 1 ? " *" : "");
}

std::string time_text(const TimeComparison &time, double ns, std::size_t n) {
    if (n == 0)
        return "n/a";
    return (time.is_bound ? "<= " : "") + ns_text(ns);
}

std::string change_text(const TimeComparison &time) {
    switch (time.state) {
    case CompareState::Unknown:
        return "n/a";
    case CompareState::TooFew:
        return "too few";
    case CompareState::Alike:
        return "alike";
    case CompareState::Smaller:
    case CompareState::Larger:
        break;
    }
    if (time.ratio)
        return fmt::format("x {:.2f}", *time.ratio);
    return time.state == CompareState::Larger ? "longer" : "shorter";
}

void put_operations(std::string &text, const Comparison &comparison, const RenderOptions &options) {
    Table table({{.title = "comm"},
                 {.title = "operation"},
                 {.title = "count A", .align = Align::Right},
                 {.title = "count B", .align = Align::Right},
                 {.title = "chosen A", .drop_order = 2},
                 {.title = "chosen B", .drop_order = 3},
                 {.title = "time A", .align = Align::Right},
                 {.title = "time B", .align = Align::Right},
                 {.title = "time"},
                 {.title = "spread A", .align = Align::Right, .drop_order = 4},
                 {.title = "spread B", .align = Align::Right, .drop_order = 5},
                 {.title = "spread", .drop_order = 1}});
    const std::size_t n = std::min(comparison.groups.size(), options.rows);
    for (std::size_t i = 0; i < n; ++i) {
        const OperationGroup &group = comparison.groups[i];
        const CommPair &pair = comparison.matches.pairs[group.pair];
        const TimeComparison &time = group.of(Metric::Time), &spread = group.of(Metric::Spread);
        const std::string label = label_of(pair);
        table.add({fmt::format("{}{}{}{}", pair.a, is_guess(pair.by) ? "?" : "",
                               label.empty() ? "" : " ", label),
                   group_text(group), report::grouped(group.a.count),
                   report::grouped(group.b.count), choice_text(group.a), choice_text(group.b),
                   time_text(time, time.usual_a, time.n_a), time_text(time, time.usual_b, time.n_b),
                   change_text(time), time_text(spread, spread.usual_a, spread.n_a),
                   time_text(spread, spread.usual_b, spread.n_b), change_text(spread)});
    }
    if (table.empty())
        return;
    text += "\nOperations, the most time first\n" + table.text(options.width);
    if (comparison.groups.size() > n)
        text += fmt::format("  and {} more: --rows {}\n", comparison.groups.size() - n,
                            comparison.groups.size());
    text += "  times: medians of means (docs/against.md); time: from the launch to the end on the "
            "slowest rank; spread: from "
            "the first rank's call to the last one's\n  alike: the difference is not larger than "
            "the spread of each run; *: and other choices; ?: the communicator's match, or its "
            "role, is a guess\n";
}

} // namespace

std::string render_text(const Comparison &comparison, const RenderOptions &options) {
    std::string text = "collwire report A --against B\n";
    put_line(text, "verdict", comparison.sentence, options.width);
    put_line(text, "A", run_text(comparison.a), options.width);
    put_line(text, "B", run_text(comparison.b), options.width);
    if (!comparison.differences.empty())
        text += "\nWhat is different in A, causes before effects\n";
    const std::size_t n = std::min(comparison.differences.size(), MOST_DIFFERENCES);
    for (std::size_t i = 0; i < n; ++i) {
        const Difference &one = comparison.differences[i];
        std::string sentence = one.sentence;
        if (one.since_ns)
            sentence += fmt::format("; since {}", report::utc(*one.since_ns));
        put_line(text, topic_name(one.topic), sentence, options.width);
    }
    if (comparison.differences.size() > n)
        text += fmt::format("  and {} more: --json\n", comparison.differences.size() - n);
    put_operations(text, comparison, options);
    if (!comparison.not_compared.empty())
        text += "\nNot compared\n";
    for (const std::string &sentence : comparison.not_compared)
        text += fmt::format("  {}\n", wrapped(sentence, options.width, 4));
    return text;
}

} // namespace collwire::against
