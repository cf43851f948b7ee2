// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/report_against.h"

#include <fmt/format.h>

#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "base/exit_status.h"
#include "correlate/against/comparison.h"
#include "correlate/against/render.h"
#include "correlate/against/run_rows.h"
#include "correlate/model/ingest.h"
#include "correlate/model/jobs.h"
#include "correlate/model/join.h"
#include "correlate/tabulate/tabulate.h"
#include "tools/cli/print_error.h"
#include "tools/cli/private_file.h"
#include "tools/cli/read_captures.h"

namespace collwire::cli {
namespace {

struct ReadRun {
    int status = EXIT_DONE;
    bool is_usable = false;
};

// The model lives only here: of one run at a time.
ReadRun read_run(const std::vector<std::string> &paths, const Selection &selection,
                 const topology::Topology *topology, against::RunRows &rows) {
    model::Ingest ingest;
    auto read = ingest_all("report", paths, selection, ingest);
    if (!read) {
        print_error("collwire report: {}\n", read.failure().message);
        return {.status = exit_status_of(read.failure())};
    }
    if (read->used == 0)
        return {.status = EXIT_FAILED};
    model::Model model = ingest.take();
    if (!selection.job.empty())
        model::keep_job(model, selection.job);
    else if (const auto jobs = model::find_jobs(model); jobs.size() > 1)
        print_error("collwire report: {} jobs are in the captures of {}: all of them are compared. "
                    "Fix: choose with --job and --against-job\n",
                    jobs.size(), paths.front());
    model::join(model, topology);
    tabulate::tabulate(model, false, rows);
    const bool has_loss = model.lost_records != 0;
    return {.status = !read->all_used ? EXIT_FAILED
                      : has_loss      ? EXIT_LOSS
                                      : EXIT_DONE,
            .is_usable = true};
}

Selection selection_of_b(const ReportCommand &command) {
    Selection selection = command.selection;
    selection.job = command.against_selection.job;
    if (command.against_selection.has_window()) {
        selection.from = command.against_selection.from;
        selection.to = command.against_selection.to;
        selection.last.clear();
    }
    return selection;
}

} // namespace

int run_against(const ReportCommand &command, const topology::Topology *topology,
                std::size_t width) {
    against::Comparison comparison;
    int status = EXIT_DONE;
    {
        against::RunRows a, b;
        const ReadRun read_a = read_run(command.paths, command.selection, topology, a);
        if (!read_a.is_usable)
            return read_a.status;
        const ReadRun read_b = read_run(command.against, selection_of_b(command), topology, b);
        if (!read_b.is_usable)
            return read_b.status;
        for (const int one : {read_a.status, read_b.status})
            status = one == EXIT_FAILED || status == EXIT_DONE ? one : status;
        comparison = against::compare_runs(a, b);
    }
    if (command.json == "-")
        std::cout << against::render_json(comparison, COLLWIRE_VERSION);
    else
        std::cout << against::render_text(comparison, {.rows = command.rows, .width = width});
    if (!std::cout.flush()) {
        print_error("collwire report: cannot write to standard output. Fix: check its disk or "
                    "pipe\n");
        return EXIT_FAILED;
    }
    if (!command.json.empty() && command.json != "-")
        if (const auto written =
                write_private_file(command.json, "--json",
                                   [&](std::ostream &out) {
                                       out << against::render_json(comparison, COLLWIRE_VERSION);
                                   });
            !written) {
            print_error("collwire report: {}\n", written.failure().message);
            return EXIT_FAILED;
        }
    return comparison.verdict == against::VerdictCode::NotComparable ? EXIT_FAILED : status;
}

} // namespace collwire::cli
