// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "correlate/diagnose/render.h"
#include "correlate/inspect/job_text.h"
#include "correlate/report/job_lines.h"
#include "correlate/report/units.h"
#include "correlate/report/window_text.h"
#include "correlate/verdict/render.h"

namespace collwire::diagnose {
namespace {

using report::grouped;
using report::printable;

constexpr std::size_t MOST_NAMED = 16;
// A job of many GPUs has dozens of communicators, of which one is stuck.
constexpr std::size_t MOST_QUIET = 3;

// "1, 2, 3 and 7 more"
template <typename T> std::string first_of(const std::vector<T> &all) {
    const std::size_t n = std::min(all.size(), MOST_NAMED);
    std::string text = fmt::format(
        "{}", fmt::join(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(n), ", "));
    if (all.size() > n)
        text += fmt::format(" and {} more", all.size() - n);
    return text;
}

// The operation that most ranks have in flight.
std::string operation_text(const Communicator &comm) {
    std::map<std::string, std::set<std::int32_t>> doing;
    for (const Rank &rank : comm.ranks) {
        if (rank.proxy == nullptr)
            continue;
        for (const inspect::Operation &operation : rank.proxy->operations)
            if (!operation.is_queued && !operation.function.empty())
                doing[operation.function].insert(rank.rank);
    }
    const auto most =
        std::ranges::max_element(doing, {}, [](const auto &entry) { return entry.second.size(); });
    return most == doing.end() ? std::string{}
                               : fmt::format("{} in {}", most->second.size(), most->first);
}

void put_causes(const std::vector<Cause> &causes, std::string &text) {
    for (const Cause &cause : causes) {
        text += fmt::format("  -> {}: {}\n", kind_name(cause.kind), printable(cause.sentence));
        for (const std::string &line : cause.evidence)
            text += fmt::format("       {}\n", printable(line));
    }
}

// Why no wait is visible.
std::string why_quiet(const Communicator &comm) {
    const bool moves = std::ranges::any_of(comm.ranks, [](const Rank &rank) {
        return rank.standing.standing == inspect::Standing::Moving ||
               rank.standing.standing == inspect::Standing::Starting ||
               rank.comm->has_launched.value_or(false);
    });
    return moves ? "its operations make progress"
                 : "no operation is in flight over the network; waits inside a node do not show";
}

void put(const Communicator &comm, std::string &text) {
    text += fmt::format("\n{}  {:#018x}\n", printable(title_of(comm)), comm.hash);
    std::string facts = fmt::format("  {} of {} ranks inspected", comm.ranks.size(), comm.n_ranks);
    if (const std::string operation = operation_text(comm); !operation.empty())
        facts += "; " + operation;
    if (comm.most_launched)
        facts += fmt::format("; {} collectives launched", grouped(*comm.most_launched));
    text += facts + "\n";
    if (!comm.missing.empty())
        text += fmt::format("  no file from rank{} {}\n", comm.missing.size() == 1 ? "" : "s",
                            first_of(comm.missing));
    if (comm.is_ambiguous)
        text += "  two processes claim the same rank: several communicators share this hash and "
                "cannot be separated\n";
    std::map<std::uint64_t, std::vector<std::int32_t>> behind;
    for (const Behind &one : comm.behind)
        behind[one.by].push_back(one.rank);
    for (const auto &[by, ranks] : behind)
        text += fmt::format("  {} operation{} behind: rank{} {}\n", by, by == 1 ? "" : "s",
                            ranks.size() == 1 ? "" : "s", first_of(ranks));
    if (!comm.is_stuck)
        text += comm.causes.empty() ? "  no wait is visible: " + why_quiet(comm) + "\n"
                                    : "  slow, not stuck\n";
    put_causes(comm.causes, text);
}

// "rank 1 of data (2 ranks), rank 3 of tensor (8 ranks) x 2"
std::string counted_text(const std::map<std::string, std::size_t> &counts) {
    std::vector<std::string> texts;
    texts.reserve(counts.size());
    for (const auto &[text, n] : counts)
        texts.push_back(n == 1 ? printable(text) : fmt::format("{} x {}", printable(text), n));
    return first_of(texts);
}

// A rank that does not run holds up every communicator that it is in.
void put_common_causes(const std::vector<Communicator> &communicators, std::string &text) {
    struct OfProcess {
        std::size_t n = 0;
        std::map<std::string, std::size_t> ranks;
    };
    std::map<std::pair<std::string, Kind>, OfProcess> processes; // key: host and pid
    for (const Communicator &comm : communicators)
        for (const Cause &cause : comm.causes)
            if (const Rank *rank = find_rank(comm, cause.rank); rank != nullptr) {
                OfProcess &process =
                    processes[{inspect::place_text(rank->host, *rank->process), cause.kind}];
                ++process.n;
                ++process.ranks[fmt::format("rank {} of {}", cause.rank, title_of(comm))];
            }
    for (const auto &[key, process] : processes)
        if (process.n > 1)
            text += fmt::format("\none process is a cause in {} communicators\n  -> {}: {}: {}\n",
                                process.n, kind_name(key.second), printable(key.first),
                                counted_text(process.ranks));
}

// Nothing to say about it but that it is there.
bool is_quiet(const Communicator &comm) {
    return !comm.is_stuck && comm.causes.empty() && comm.missing.empty() && comm.behind.empty() &&
           !comm.is_ambiguous;
}

// "tensor (8 ranks) x 2, data (2 ranks) x 8"; those without a name by their number of ranks.
std::string quiet_text(const std::vector<const Communicator *> &quiet) {
    std::map<std::string, std::size_t> by_title;
    for (const Communicator *comm : quiet)
        ++by_title[comm->name.empty() && comm->guessed_role.empty()
                       ? fmt::format("without a name ({} ranks)", comm->n_ranks)
                       : title_of(*comm)];
    return fmt::format(
        "\n{} communicators show no wait, and all their ranks were inspected:\n  {}\n"
        "  their operations make progress, or none is in flight over the network; "
        "waits inside a node do not show\n",
        quiet.size(), counted_text(by_title));
}

void put(const UnreadyCommunicator &comm, std::string &text) {
    text += fmt::format("\n{}  is being made, and not ready\n", printable(title_of(comm)));
    if (comm.parent_hash)
        text += fmt::format("  child of {:#018x}\n", *comm.parent_hash);
    std::string facts = fmt::format("  {} of {} ranks have come", comm.ranks.size(),
                                    comm.n_ranks == 0 ? "?" : fmt::format("{}", comm.n_ranks));
    if (!comm.ready.empty())
        facts += fmt::format("; for rank{} {} it is ready", comm.ready.size() == 1 ? "" : "s",
                             first_of(comm.ready));
    text += facts + "\n";
    if (!comm.absent.empty())
        text += fmt::format("  not in any file: rank{} {}\n", comm.absent.size() == 1 ? "" : "s",
                            first_of(comm.absent));
    for (std::size_t i = 0; i < std::min(comm.ranks.size(), MOST_NAMED); ++i)
        text +=
            fmt::format("  rank {} ({}) {}\n",
                        comm.ranks[i].rank < 0 ? "?" : fmt::format("{}", comm.ranks[i].rank),
                        printable(inspect::place_text(comm.ranks[i].host, *comm.ranks[i].process)),
                        printable(inspect::sentence_of(*comm.ranks[i].comm)));
    put_causes(comm.causes, text);
}

void put(const Circle &circle, std::size_t number, std::string &text) {
    text += fmt::format("\ncircle {}\n  -> DEADLOCK: {}\n", number, printable(circle.sentence));
    for (const Circle::Step &step : circle.steps)
        text += fmt::format("       {}\n", printable(step.sentence));
    for (const std::string &order : circle.orders)
        text += fmt::format("       order of {}\n", printable(order));
}

} // namespace

std::string render_text(const Diagnosis &diagnosis) {
    std::string text = "collwire diagnose: ";
    if (diagnosis.n_captures != 0)
        text += fmt::format("{} capture(s){}", diagnosis.n_captures,
                            diagnosis.n_witnesses != 0 ? ", " : "\n");
    if (diagnosis.n_witnesses != 0 || diagnosis.n_captures == 0)
        text += fmt::format("{} file(s), {} communicator(s){}\n", diagnosis.n_witnesses,
                            diagnosis.communicators.size(),
                            diagnosis.unready.empty()
                                ? ""
                                : fmt::format(", {} being made", diagnosis.unready.size()));
    for (const std::string &line : report::job_lines(diagnosis.jobs))
        text += "  " + line + "\n";
    if (diagnosis.window) {
        const char *title = "  window: ";
        for (const std::string &line : report::window_lines(*diagnosis.window))
            text += std::exchange(title, "          ") + line + "\n";
        if (diagnosis.is_tail)
            text += "          it has the last calls of every rank, which show where each stood; "
                    "`--read whole` reads everything\n";
    }
    if (!diagnosis.needed_model.empty())
        text += fmt::format("  read whole, into memory: {}\n", printable(diagnosis.needed_model));
    for (const std::string &warning : diagnosis.warnings)
        text += fmt::format("  warning: {}\n", printable(warning));
    if (diagnosis.n_captures != 0)
        text += diagnosis.verdicts.empty()
                    ? std::string("\nfrom captures: no rank waited for another for a second when "
                                  "they ended\n")
                    : verdict::render_text(diagnosis.verdicts);
    for (std::size_t i = 0; i < diagnosis.circles.size(); ++i)
        put(diagnosis.circles[i], i + 1, text);
    for (const UnreadyCommunicator &comm : diagnosis.unready)
        put(comm, text);
    put_common_causes(diagnosis.communicators, text);
    std::vector<const Communicator *> quiet;
    for (const Communicator &comm : diagnosis.communicators)
        if (is_quiet(comm))
            quiet.push_back(&comm);
    const bool in_one_line = quiet.size() > MOST_QUIET;
    for (const Communicator &comm : diagnosis.communicators)
        if (!in_one_line || !is_quiet(comm))
            put(comm, text);
    if (in_one_line)
        text += quiet_text(quiet);
    return text;
}

} // namespace collwire::diagnose
