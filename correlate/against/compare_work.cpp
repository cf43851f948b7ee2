// SPDX-License-Identifier: Apache-2.0
// What the job does: operations of one run alone, their shares of all calls, their bytes.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "correlate/against/parts.h"
#include "correlate/report/units.h"

namespace collwire::against {
namespace {

constexpr std::uint64_t LEAST_CALLS = 4;
constexpr double LEAST_SHARE_CHANGE = 0.25;
constexpr double LEAST_BYTES_CHANGE = 0.01;
constexpr std::size_t MOST_NAMED = 4;

bool has_damaged_captures(const RunRows &run) {
    return std::ranges::any_of(run.of<rows::CaptureRow>(), [](const rows::CaptureRow &row) {
        return row.end == "damaged" || row.end == "unreadable";
    });
}

// Calls of A for each of B, of the usual group; absent: no group is in both runs.
std::optional<double> usual_ratio(const Comparison &result) {
    std::vector<double> ratios;
    for (const OperationGroup &group : result.groups)
        if (group.a.count >= LEAST_CALLS && group.b.count >= LEAST_CALLS)
            ratios.push_back(static_cast<double>(group.a.count) /
                             static_cast<double>(group.b.count));
    if (ratios.empty())
        return std::nullopt;
    std::ranges::sort(ratios);
    return ratios[ratios.size() / 2];
}

// By what differs: the communicators of A.
using Sentences = std::map<std::string, std::vector<std::uint64_t>>;

void add_all(std::string_view code, const Sentences &sentences, Comparison &result) {
    for (const auto &[sentence, comms] : sentences)
        result.differences.push_back(
            {.topic = Topic::Work,
             .code = std::string(code),
             .sentence = fmt::format("{} ({})", sentence, comms_text(comms)),
             .comms = comms});
}

// Sizes of a call that one run has alone, in one sentence.
void compare_presence(double ratio, Comparison &result) {
    struct Sides {
        std::vector<std::string> a, b;
    };
    std::map<std::pair<std::size_t, std::string>, Sides> by_call;
    for (const OperationGroup &group : result.groups) {
        const std::string text =
            fmt::format("{} ({} times)",
                        group.size_bytes ? report::human_bytes(*group.size_bytes) : "unknown size",
                        std::max(group.a.count, group.b.count));
        Sides &sides = by_call[{group.pair, group.op}];
        if (group.b.count == 0 &&
            static_cast<double>(group.a.count) >= LEAST_CALLS * std::max(1.0, ratio))
            sides.a.push_back(text);
        if (group.a.count == 0 &&
            static_cast<double>(group.b.count) >= LEAST_CALLS / std::min(1.0, ratio))
            sides.b.push_back(text);
    }
    Sentences sentences;
    for (const auto &[call, sides] : by_call) {
        std::string text;
        if (!sides.a.empty())
            text = "in A only: " + list_text(sides.a, MOST_NAMED);
        if (!sides.b.empty())
            text += fmt::format("{}in B only: {}", text.empty() ? "" : "; ",
                                list_text(sides.b, MOST_NAMED));
        if (!text.empty())
            sentences[fmt::format("sizes of {} {}", report::printable(call.second), text)]
                .push_back(result.matches.pairs[call.first].a);
    }
    add_all("operation", sentences, result);
}

void compare_counts(double ratio, Comparison &result) {
    Sentences sentences;
    for (const OperationGroup &group : result.groups) {
        if (group.a.count == 0 || group.b.count == 0)
            continue;
        const double expected = static_cast<double>(group.b.count) * ratio;
        const double off = std::abs(static_cast<double>(group.a.count) - expected);
        const double least = LEAST_CALLS * std::max(1.0, ratio);
        if (off > least && off > LEAST_SHARE_CHANGE * expected)
            sentences[fmt::format("{}: {} calls, {} before; of the other operations A has {:.2f} "
                                  "calls for each of B",
                                  group_text(group), group.a.count, group.b.count, ratio)]
                .push_back(result.matches.pairs[group.pair].a);
    }
    add_all("calls", sentences, result);
}

void compare_bytes(Comparison &result) {
    Sentences sentences;
    for (const OperationGroup &group : result.groups) {
        const auto &a = group.a.payload_bytes, &b = group.b.payload_bytes;
        if (!a || !b || group.a.byte_source != group.b.byte_source || group.is_size_class ||
            result.matches.pairs[group.pair].n_ranks_a !=
                result.matches.pairs[group.pair].n_ranks_b)
            continue;
        const auto of_a = static_cast<double>(*a), of_b = static_cast<double>(*b);
        if (std::abs(of_a - of_b) > LEAST_BYTES_CHANGE * std::max(of_a, of_b))
            sentences[fmt::format("payload of {}: {}, before {}", group_text(group),
                                  report::human_bytes(*a), report::human_bytes(*b))]
                .push_back(result.matches.pairs[group.pair].a);
    }
    add_all("bytes", sentences, result);
}

} // namespace

void compare_work(const TwoRuns &runs, Comparison &result) {
    std::string reason;
    if (has_lost_operations(runs.a) || has_lost_operations(runs.b))
        reason = "records were lost";
    else if (has_damaged_captures(runs.a) || has_damaged_captures(runs.b))
        reason = "a capture is damaged";
    else if (!has_all_ranks(runs.a) || !has_all_ranks(runs.b))
        reason = "not all ranks are in the captures of both runs";
    if (!reason.empty()) {
        result.not_compared.push_back(
            fmt::format("numbers and sizes of operations: {}, so operations that one run has alone "
                        "may be missing from the other's captures",
                        reason));
    } else if (const auto ratio = usual_ratio(result)) {
        compare_presence(*ratio, result);
        compare_counts(*ratio, result);
    } else if (!result.groups.empty()) {
        compare_presence(1, result);
    }
    compare_bytes(result);
}

} // namespace collwire::against
