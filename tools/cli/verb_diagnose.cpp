// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/exit_status.h"
#include "correlate/diagnose/diagnosis.h"
#include "correlate/diagnose/render.h"
#include "correlate/inspect/json.h"
#include "correlate/model/ingest.h"
#include "correlate/model/jobs.h"
#include "correlate/model/join.h"
#include "correlate/roles/guess_roles.h"
#include "correlate/stall/find_standing.h"
#include "correlate/stall/judge.h"
#include "correlate/stream/tail_finder.h"
#include "tools/cli/print_error.h"
#include "tools/cli/read_captures.h"
#include "tools/cli/read_file.h"
#include "tools/cli/read_signs.h"
#include "tools/cli/read_standings.h"
#include "tools/cli/verbs.h"

namespace collwire::cli {
namespace {

// An inspection of a process with 64 operations in flight has about 100 KiB; parsing takes ten
// times the memory of the text.
constexpr std::size_t MAX_INSPECTION_BYTES = 64UL << 20U;

// Before the last calls of each rank: more where the tail does not show what had ended.
constexpr std::array<std::uint64_t, 3> MARGINS_NS = {stream::TailFinder::MARGIN_NS,
                                                     4 * stream::TailFinder::MARGIN_NS,
                                                     16 * stream::TailFinder::MARGIN_NS};

// Captures of which all is read in a second or two.
constexpr std::uintmax_t SMALL_BYTES = 64UL << 20U;

Result<inspect::Inspection> read_inspection(const std::string &path) {
    const auto bytes = read_file(path, MAX_INSPECTION_BYTES + 1);
    if (!bytes)
        return bytes.failure();
    if (bytes->size() > MAX_INSPECTION_BYTES)
        return error(ErrorKind::BadInput,
                     fmt::format("{}: larger than {} MiB, which no inspection of a node is. Fix: "
                                 "inspect fewer processes at once",
                                 path, MAX_INSPECTION_BYTES >> 20U));
    auto parsed =
        inspect::parse_inspection({reinterpret_cast<const char *>(bytes->data()), bytes->size()});
    if (!parsed)
        return std::move(parsed).failure().in(path);
    return parsed;
}

// A directory stands for its captures.
bool has_captures(const std::string &path) {
    std::error_code failure;
    return std::filesystem::is_directory(path, failure) || is_capture(path);
}

Part part_of(const std::string &asked, const std::vector<std::string> &paths) {
    if (asked != "auto")
        return asked == "tail" ? Part::Tail : Part::Selected;
    std::uintmax_t bytes = 0;
    for (const std::string &path : expand_captures(paths).files) {
        std::error_code failure;
        const std::uintmax_t of_file = std::filesystem::file_size(path, failure);
        bytes += failure ? 0 : of_file;
    }
    return bytes > SMALL_BYTES ? Part::Tail : Part::Selected;
}

// Verdicts that call a rank late for certain depend on its longest pause, of all its calls.
std::vector<std::string> hosts_of_certain(const std::vector<verdict::Verdict> &verdicts) {
    std::vector<std::string> hosts;
    for (const verdict::Verdict &verdict : verdicts)
        if (verdict.confidence == verdict::Confidence::Certain &&
            (verdict.code == verdict::Code::RankNotCalled ||
             verdict.code == verdict::Code::RankNotLaunched))
            hosts.push_back(verdict.subject.host);
    return hosts;
}

std::vector<verdict::Verdict> judge(stall::Standings &standings, const ChosenCaptures &chosen) {
    std::vector<verdict::Verdict> verdicts = stall::judge(standings);
    if (!chosen.is_tail)
        return verdicts;
    const std::vector<std::string> hosts = hosts_of_certain(verdicts);
    if (hosts.empty())
        return verdicts;
    read_pauses(chosen, hosts, standings);
    return stall::judge(standings);
}

// What captures show.
struct FromCaptures {
    diagnose::Diagnosis diagnosis; // without inspections
    std::vector<diagnose::CapturedRole> roles;
};

std::vector<diagnose::CapturedRole> roles_of(const stall::Standings &standings) {
    std::vector<diagnose::CapturedRole> roles;
    for (const stall::Communicator &comm : standings.communicators)
        roles.push_back({comm.hash, comm.n_ranks, comm.guessed_role});
    return roles;
}

// An exit status.
int add_from_stream(ReadStandings &read, const ChosenCaptures &chosen, FromCaptures &from) {
    diagnose::Diagnosis &diagnosis = from.diagnosis;
    for (const std::string &message : read.messages)
        print_error("collwire diagnose: {}\n", message);
    diagnosis.n_captures = read.read.used;
    if (read.read.used == 0)
        return EXIT_FAILED;
    diagnosis.window = read.read.window;
    diagnosis.is_tail = chosen.is_tail;
    diagnosis.jobs = std::move(read.jobs);
    diagnosis.verdicts = judge(read.standings, chosen);
    from.roles = roles_of(read.standings);
    if (read.unknown_pairs != 0)
        diagnosis.warnings.push_back(fmt::format(
            "the sends and receives of {} pair(s) of ranks were recorded from the middle on, and "
            "cannot be compared: whether one of them is missing is not known",
            read.unknown_pairs));
    return read.read.all_used ? EXIT_DONE : EXIT_FAILED;
}

// By the model of all of the captures that are chosen; an exit status.
int add_from_model(const std::vector<std::string> &paths, const ChosenCaptures &chosen,
                   const DiagnoseCommand &command, FromCaptures &from) {
    const Selection &selection = command.selection;
    diagnose::Diagnosis &diagnosis = from.diagnosis;
    model::Ingest records;
    const auto read = ingest("diagnose", chosen, records);
    if (!read) {
        print_error("collwire diagnose: {}\n", read.failure().message);
        return exit_status_of(read.failure());
    }
    diagnosis.n_captures = read->used;
    if (read->used == 0)
        return EXIT_FAILED;
    const auto join = [&](model::Ingest &of) {
        model::Model model = of.take();
        if (!selection.job.empty())
            model::keep_job(model, selection.job);
        model::join(model, nullptr);
        return model;
    };
    model::Model model = join(records);
    diagnosis.window = read->window;
    diagnosis.is_tail = chosen.is_tail;
    if (read->window && read->window->from_ns > read->window->recorded_from_ns &&
        stall::lacks_calls(model)) {
        // Where a rank stands is its last call, which may be before the window.
        Selection earlier = selection;
        earlier.from.clear();
        earlier.last.clear();
        model::Ingest again;
        if (const auto whole = ingest_all("diagnose", paths, earlier, again);
            whole && whole->used != 0) {
            model = join(again);
            diagnosis.window = whole->window;
            diagnosis.is_tail = false;
            diagnosis.warnings.emplace_back(
                "a rank has no NCCL call in the window: the captures were read from their start "
                "on, "
                "since the last call of each rank shows where it stood");
        }
    }
    diagnosis.jobs = model::find_jobs(model);
    stall::Standings standings = stall::find_standing(model, roles::guess_roles(model));
    diagnosis.verdicts = judge(standings, chosen);
    from.roles = roles_of(standings);
    if (model.lost_records != 0)
        diagnosis.warnings.push_back(fmt::format("{} record(s) were lost while recording: see "
                                                 "`collwire report`",
                                                 model.lost_records));
    return read->all_used ? EXIT_DONE : EXIT_FAILED;
}

// An exit status.
int add_captures(const std::vector<std::string> &paths, const DiagnoseCommand &command,
                 FromCaptures &from) {
    const auto failed = [](const Error &failure) {
        print_error("collwire diagnose: {}\n", failure.message);
        return exit_status_of(failure);
    };
    const Part part = part_of(command.part, paths);
    auto chosen = choose_captures(paths, command.selection, part, MARGINS_NS.front());
    if (!chosen) {
        for (const auto &refused : expand_captures(paths).refused)
            print_error("collwire diagnose: {}\n", refused.failure.message);
        return failed(chosen.failure());
    }
    // A window that was asked for may begin after the last call of a rank.
    const bool has_all_calls = command.selection.from.empty() && command.selection.last.empty();
    const bool is_stream = command.core == "auto" && has_all_calls;
    std::optional<std::size_t> unknown_before; // of a shorter tail
    for (std::size_t widened = 0; is_stream; ++widened) {
        ReadStandings read = read_standings(*chosen, command.selection.job);
        // Four times as long a tail shows no more ends: nor do the other records. Sends and
        // receives are counted if all is read.
        const bool is_enough = !chosen->is_tail || read.unknown_ends == 0 ||
                               (read.unknown_ends == unknown_before && read.unknown_pairs == 0);
        unknown_before = read.unknown_ends;
        if (read.needs_model.empty() && is_enough &&
            (read.has_errors || (read.has_network_signs && !stall::judge(read.standings).empty())))
            read_signs(*chosen, command.selection.job, read);
        const bool can_tell = read.needs_model.empty();
        const bool may_read_more = can_tell || read.may_be_too_short;
        from.diagnosis.needed_model = read.needs_model;
        if (can_tell && is_enough)
            return add_from_stream(read, *chosen, from);
        const bool was_tail = chosen->is_tail;
        if (was_tail)
            chosen = may_read_more && widened + 1 < MARGINS_NS.size()
                         ? choose_captures(paths, command.selection, part, MARGINS_NS[widened + 1])
                         : choose_captures(paths, command.selection);
        if (!chosen)
            return failed(chosen.failure());
        if (!was_tail || !may_read_more)
            break;
    }
    return add_from_model(paths, *chosen, command, from);
}

void put_captures(diagnose::Diagnosis captured, diagnose::Diagnosis &diagnosis) {
    diagnosis.n_captures = captured.n_captures;
    diagnosis.window = std::move(captured.window);
    diagnosis.needed_model = std::move(captured.needed_model);
    diagnosis.is_tail = captured.is_tail;
    diagnosis.jobs = std::move(captured.jobs);
    diagnosis.verdicts = std::move(captured.verdicts);
    std::ranges::move(captured.warnings, std::back_inserter(diagnosis.warnings));
}

} // namespace

int run_diagnose(const DiagnoseCommand &command) {
    std::vector<inspect::Inspection> inspections;
    std::vector<std::string> captures;
    int worst = EXIT_DONE;
    for (const std::string &path : command.files) {
        if (has_captures(path)) {
            captures.push_back(path);
            continue;
        }
        auto read = read_inspection(path);
        if (read) {
            inspections.push_back(std::move(*read));
            continue;
        }
        // The other files may be enough.
        print_error("collwire diagnose: {}\n", read.failure().message);
        worst = worst == EXIT_DONE ? exit_status_of(read.failure()) : worst;
    }
    FromCaptures from;
    if (!captures.empty()) {
        const int status = add_captures(captures, command, from);
        worst = worst == EXIT_DONE ? status : worst;
    }
    diagnose::Diagnosis diagnosis = diagnose::diagnose(inspections, from.roles);
    put_captures(std::move(from.diagnosis), diagnosis);
    if (inspections.empty() && diagnosis.n_captures == 0)
        return worst;
    const std::string text = command.json ? diagnose::render_json(diagnosis, COLLWIRE_VERSION)
                                          : diagnose::render_text(diagnosis);
    std::fwrite(text.data(), 1, text.size(), stdout);
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
        std::fputs("collwire diagnose: cannot write to standard output\n", stderr);
        return EXIT_FAILED;
    }
    return worst;
}

} // namespace collwire::cli
