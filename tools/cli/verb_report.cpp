// SPDX-License-Identifier: Apache-2.0
#include <sys/ioctl.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <optional>

#include "base/exit_status.h"
#include "correlate/find/find_operations.h"
#include "correlate/find/render.h"
#include "correlate/find/watchdog_line.h"
#include "correlate/model/ingest.h"
#include "correlate/model/jobs.h"
#include "correlate/model/join.h"
#include "correlate/nccl/port_incidents.h"
#include "correlate/nccl/waiting.h"
#include "correlate/report/json_report.h"
#include "correlate/report/text_report.h"
#include "correlate/roles/guess_roles.h"
#include "correlate/stall/find_standing.h"
#include "correlate/stall/judge.h"
#include "correlate/tabulate/tabulate.h"
#include "correlate/topology/topology.h"
#include "correlate/verdict/verdict.h"
#include "outputs/sqlite/sqlite_file.h"
#include "tools/cli/private_file.h"
#include "tools/cli/read_captures.h"
#include "tools/cli/report_against.h"
#include "tools/cli/report_intervals.h"
#include "tools/cli/topology_file.h"
#include "tools/cli/verbs.h"

namespace collwire::cli {

namespace {

constexpr std::size_t WIDTH_WITHOUT_TERMINAL = 120;
constexpr std::size_t MOST_VERDICTS = 3;

void complain(std::string_view message) {
    std::cerr << "collwire report: " << message << '\n';
}

report::TextOptions text_options(std::size_t rows, std::vector<std::string> verdicts) {
    report::TextOptions options;
    options.verdicts = std::move(verdicts);
    options.rows = rows;
    options.width = WIDTH_WITHOUT_TERMINAL;
    winsize size{};
    const char *columns = std::getenv("COLUMNS");
    if (isatty(STDOUT_FILENO) == 1) {
        const char *no_color = std::getenv("NO_COLOR");
        options.color = no_color == nullptr || *no_color == 0;
        if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col != 0)
            options.width = size.ws_col;
    } else if (columns != nullptr) {
        std::size_t width = 0;
        if (std::from_chars(columns, columns + std::strlen(columns), width).ec == std::errc{} &&
            width != 0)
            options.width = width;
    }
    return options;
}

// A signal while it writes takes effect after the unfinished file is removed.
Result<void> write_sqlite_file(const model::Model &model, const ReportCommand &command) {
    auto file = sqlite::SqliteFile::create(command.sqlite, command.detail ? rows::Scope::Detail
                                                                          : rows::Scope::Report);
    if (!file)
        return std::move(file).failure();
    tabulate::tabulate(model, command.detail, **file);
    return (*file)->finish();
}

// For the first lines: whether a rank waited for another when the captures ended.
std::vector<std::string> verdict_lines(const model::Model &model) {
    if (model.nccl.instances.empty())
        return {};
    const std::vector<verdict::Verdict> verdicts =
        stall::judge(stall::find_standing(model, roles::guess_roles(model)));
    if (verdicts.empty())
        return {"no rank waited for another for a second when the captures ended"};
    std::vector<std::string> lines;
    for (const verdict::Verdict &one : verdicts) {
        if (lines.size() == MOST_VERDICTS) {
            lines.push_back(fmt::format("and {} more", verdicts.size() - lines.size()));
            break;
        }
        lines.push_back(fmt::format(
            "{}{}: {}", verdict::code_name(one.code),
            one.confidence == verdict::Confidence::Probable ? " (probable)" : "", one.sentence));
    }
    lines.emplace_back("the evidence: collwire diagnose, with the same captures");
    return lines;
}

Result<void> write_reports(const model::Model &model, const ReportCommand &command) {
    const std::vector<nccl::WaitingTimes> waiting = nccl::find_waiting(model);
    const std::vector<nccl::PortIncident> incidents = nccl::find_port_incidents(model);
    const report::JsonOptions json{
        .detail = command.detail, .waiting = &waiting, .incidents = &incidents};
    if (command.json == "-") {
        report::write_json(model, std::cout, json);
    } else {
        report::TextOptions text = text_options(command.rows, verdict_lines(model));
        text.waiting = &waiting;
        text.incidents = &incidents;
        std::cout << report::text_report(model, text);
    }
    if (!std::cout.flush())
        return error(ErrorKind::Failed,
                     "cannot write to standard output. Fix: check its disk or pipe");
    if (!command.json.empty() && command.json != "-")
        if (auto written = write_private_file(
                command.json, "--json",
                [&](std::ostream &out) { report::write_json(model, out, json); });
            !written)
            return written;
    if (!command.sqlite.empty())
        return write_sqlite_file(model, command);
    return {};
}

// Why the outputs are not written; empty: they are.
std::string refusal_of(const ReportCommand &command) {
    const auto of_capture = [](const char *option, const std::string &path) {
        return fmt::format(
            "{} {}: refusing to overwrite a capture. Fix: give another file after {}", option, path,
            option);
    };
    if (command.json != "-" && is_capture(command.json))
        return of_capture("--json", command.json);
    if (command.sqlite == "-")
        return "--sqlite -: SQLite needs a file. Fix: give a file after --sqlite";
    if (is_capture(command.sqlite))
        return of_capture("--sqlite", command.sqlite);
    if (!command.sqlite.empty() && command.sqlite == command.json)
        return fmt::format("--json and --sqlite name the same file {}. Fix: give two files",
                           command.json);
    return {};
}

// An exit status.
int write_found(const model::Model &model, const find::WatchdogLine &line, bool as_json) {
    const find::FindResult result = find::find_operations(model, line);
    std::cout << (as_json ? find::render_json(model, line, result, COLLWIRE_VERSION)
                          : find::render_text(model, line, result));
    if (!std::cout.flush()) {
        complain("cannot write to standard output. Fix: check its disk or pipe");
        return EXIT_FAILED;
    }
    return result.operations.empty() ? EXIT_FAILED : EXIT_DONE;
}

Result<topology::Topology> read_topology(const std::string &path) {
    const auto text = read_topology_text(path);
    if (!text)
        return text.failure();
    auto parsed = topology::parse_topology(*text);
    if (parsed)
        return parsed;
    const std::string hint = other_format_hint(*text);
    return hint.empty() ? std::move(parsed).failure().in(path)
                        : error(ErrorKind::BadInput, hint).in(path);
}

} // namespace

int run_report(const ReportCommand &command) {
    if (const std::string refusal = refusal_of(command); !refusal.empty()) {
        complain(refusal);
        return EXIT_USAGE;
    }
    std::optional<find::WatchdogLine> line;
    if (!command.find.empty()) {
        auto parsed = find::parse_watchdog_line(command.find);
        if (!parsed || (!command.json.empty() && command.json != "-")) {
            complain("--find: " + (parsed
                                       ? std::string("its JSON goes to standard output. Fix: give "
                                                     "--json -")
                                       : parsed.failure().message));
            return EXIT_USAGE;
        }
        line = std::move(*parsed);
    }
    std::optional<topology::Topology> topology;
    if (!command.topology.empty()) {
        auto read = read_topology(command.topology);
        if (!read) {
            complain(read.failure().message);
            return EXIT_FAILED;
        }
        topology = std::move(read).value();
    }

    if (!command.against.empty())
        return run_against(command, topology ? &*topology : nullptr, text_options(0, {}).width);
    if (!command.every.empty()) {
        const report::TextOptions text = text_options(0, {});
        return run_intervals(command, topology ? &*topology : nullptr,
                             {.width = text.width, .color = text.color});
    }

    model::Ingest ingest;
    auto read = ingest_all("report", command.paths, command.selection, ingest);
    if (!read) {
        complain(read.failure().message);
        return exit_status_of(read.failure());
    }
    if (read->used == 0)
        return EXIT_FAILED;

    model::Model model = ingest.take();
    if (!command.selection.job.empty())
        model::keep_job(model, command.selection.job);
    model.window = std::move(read->window);
    model::join(model, topology ? &*topology : nullptr);
    if (line) {
        const int status = write_found(model, *line, command.json == "-");
        return status == EXIT_DONE && !read->all_used ? EXIT_FAILED : status;
    }
    if (const auto written = write_reports(model, command); !written) {
        complain(written.failure().message);
        return EXIT_FAILED;
    }
    if (!read->all_used)
        return EXIT_FAILED;
    return model.lost_records != 0 ? EXIT_LOSS : EXIT_DONE;
}

} // namespace collwire::cli
