// SPDX-License-Identifier: Apache-2.0
// What one run lacks in its captures, and where the two cannot be compared for that.
#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "correlate/against/parts.h"
#include "correlate/report/units.h"

namespace collwire::against {
namespace {

constexpr std::size_t MOST_NAMED = 6;

void add(std::string_view code, std::string sentence, Comparison &result) {
    result.differences.push_back(
        {.topic = Topic::Recording, .code = std::string(code), .sentence = std::move(sentence)});
}

std::string losses_text(const RunRows &run) {
    std::map<std::string, std::uint64_t> by_class;
    for (const rows::LossRow &row : run.of<rows::LossRow>())
        by_class[row.loss_class] += row.records;
    std::vector<std::string> texts;
    for (const auto &[name, records] : by_class)
        texts.push_back(fmt::format("{} {}", report::grouped(records), report::printable(name)));
    return texts.empty() ? "none" : list_text(texts, MOST_NAMED);
}

void compare_losses(const TwoRuns &runs, Comparison &result) {
    if (has_lost_operations(runs.a) || has_lost_operations(runs.b))
        add("loss",
            fmt::format("lost records: {}, before {}; bytes and numbers of operations may be too "
                        "low where records were lost",
                        losses_text(runs.a), losses_text(runs.b)),
            result);
}

// States by source of all recordings.
std::map<std::string, std::set<std::string>> sources_of(const RunRows &run) {
    std::map<std::string, std::set<std::string>> states;
    for (const rows::SourceRow &row : run.of<rows::SourceRow>())
        states[row.name].insert(row.state);
    return states;
}

void compare_sources(const TwoRuns &runs, Comparison &result) {
    const auto a = sources_of(runs.a), b = sources_of(runs.b);
    for (const auto &[name, states] : a) {
        const auto before = b.find(name);
        if (before == b.end() || before->second == states)
            continue;
        add("source",
            fmt::format("source {}: {}, before {}; what it records is not to be compared",
                        report::printable(name), list_text({states.begin(), states.end()}, 4),
                        list_text({before->second.begin(), before->second.end()}, 4)),
            result);
    }
}

std::string ranks_text(const RunRows &run) {
    std::uint64_t captured = 0;
    std::int64_t all = 0;
    for (const rows::CommunicatorRow &row : run.of<rows::CommunicatorRow>())
        if (row.n_ranks > all || (row.n_ranks == all && row.ranks_captured < captured)) {
            all = row.n_ranks;
            captured = row.ranks_captured;
        }
    return fmt::format("{} of {}", captured, all);
}

void compare_captures(const TwoRuns &runs, Comparison &result) {
    std::vector<std::string> texts;
    for (const RunRows *run : {&runs.a, &runs.b}) {
        std::vector<std::string> bad;
        for (const rows::CaptureRow &row : run->of<rows::CaptureRow>())
            if (row.end == "damaged" || row.end == "unreadable")
                bad.push_back(fmt::format("{} is {}", report::printable(row.path), row.end));
        if (!bad.empty())
            texts.push_back(list_text(bad, MOST_NAMED));
    }
    if (!texts.empty())
        add("captures", "captures: " + list_text(texts, 2), result);
    if (has_all_ranks(runs.a) != has_all_ranks(runs.b))
        add("captures",
            fmt::format("captured ranks of the largest communicator: {}, before {}",
                        ranks_text(runs.a), ranks_text(runs.b)),
            result);
}

std::string source_text(const std::optional<rows::ByteSource> &source) {
    return source
               ? std::string(
                     rows::Vocabulary<rows::ByteSource>::words[static_cast<std::size_t>(*source)])
               : "not measured";
}

void compare_byte_sources(Comparison &result) {
    std::map<std::string, std::size_t> kinds;
    for (const OperationGroup &group : result.groups)
        if (group.a.count != 0 && group.b.count != 0 && group.a.byte_source != group.b.byte_source)
            ++kinds[fmt::format("{}, before {}", source_text(group.a.byte_source),
                                source_text(group.b.byte_source))];
    for (const auto &[text, n] : kinds)
        add("byte_source",
            fmt::format("bytes of {} kind(s) of operations: {}; they are not compared", n, text),
            result);
}

} // namespace

void compare_recordings(const TwoRuns &runs, Comparison &result) {
    compare_losses(runs, result);
    compare_captures(runs, result);
    compare_sources(runs, result);
    compare_byte_sources(result);
}

} // namespace collwire::against
