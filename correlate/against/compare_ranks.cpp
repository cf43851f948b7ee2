// SPDX-License-Identifier: Apache-2.0
// Numbers of ranks, and communicators of one run alone.
#include <fmt/format.h>

#include <map>

#include "correlate/against/parts.h"
#include "correlate/report/units.h"
#include "correlate/roles/label.h"

namespace collwire::against {
namespace {

std::string number_text(const RunRows &run, const std::vector<std::uint64_t> &comms) {
    std::map<std::pair<std::int64_t, std::string>, std::uint64_t> kinds;
    for (const std::uint64_t comm : comms)
        if (const auto *row = run.communicator(comm))
            ++kinds[{row->n_ranks, row->name ? " named " + report::printable(*row->name)
                                   : row->guessed_role
                                       ? fmt::format(" ({})", roles::mark_of(*row->guessed_role))
                                       : ""}];
    std::vector<std::string> texts;
    texts.reserve(kinds.size());
    for (const auto &[kind, n] : kinds)
        texts.push_back(fmt::format("{} of {} ranks{}", n, kind.first, kind.second));
    return list_text(texts, 4);
}

} // namespace

void compare_ranks(const TwoRuns &runs, Comparison &result) {
    std::map<std::pair<std::int64_t, std::int64_t>, std::vector<std::uint64_t>> resized;
    for (const CommPair &pair : result.matches.pairs)
        if (pair.n_ranks_a != pair.n_ranks_b)
            resized[{pair.n_ranks_a, pair.n_ranks_b}].push_back(pair.a);
    for (const auto &[sizes, comms] : resized)
        result.differences.push_back(
            {.topic = Topic::Ranks,
             .code = "ranks",
             .sentence = fmt::format("{} {} ranks, {} before", comms_text(comms),
                                     comms.size() == 1 ? fmt::format("has {}", sizes.first)
                                                       : fmt::format("have {}", sizes.first),
                                     sizes.second),
             .comms = comms});
    if (!result.matches.only_a.empty())
        result.differences.push_back(
            {.topic = Topic::Ranks,
             .code = "communicator",
             .sentence = fmt::format("communicators without a like in B: {}",
                                     number_text(runs.a, result.matches.only_a)),
             .comms = result.matches.only_a});
    if (!result.matches.only_b.empty())
        result.differences.push_back(
            {.topic = Topic::Ranks,
             .code = "communicator",
             .sentence = fmt::format("communicators of B without a like in A: {}",
                                     number_text(runs.b, result.matches.only_b))});
}

} // namespace collwire::against
