// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/exit_status.h"
#include "base/units.h"
#include "correlate/inspect/json.h"
#include "correlate/inspect/text.h"
#include "tools/cli/symbols_option.h"
#include "tools/cli/verb.h"
#include "userspace/inspect/inspect.h"

namespace collwire::cli {
namespace {

struct InspectOptions {
    std::vector<pid_t> pids;
    std::vector<std::string> symbols;
    bool all = false;
    bool json = false;
    bool no_queue_pairs = false;
    std::size_t rows = 16;
    std::string between = "200ms";
};

constexpr std::uint64_t MOST_BETWEEN_NS = 60'000'000'000;

std::size_t terminal_width() {
    winsize size{};
    if (isatty(STDOUT_FILENO) == 1 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 &&
        size.ws_col >= 80)
        return size.ws_col;
    return 132;
}

int run_inspect(const InspectOptions &options) {
    const auto between = parse_duration_ns(options.between);
    if (!between || *between > MOST_BETWEEN_NS) {
        fmt::print(stderr, "collwire inspect: --between {}: {}\n", options.between,
                   between ? "more than a minute. Fix: 200ms" : between.failure().message);
        return EXIT_USAGE;
    }
    if (options.all == !options.pids.empty()) {
        fmt::print(stderr, "collwire inspect: {}. Fix: collwire inspect PID, or --all\n",
                   options.all ? "--all and processes" : "which process");
        return EXIT_USAGE;
    }
    inspect::Options wanted;
    wanted.pids = options.pids;
    wanted.between = std::chrono::milliseconds(*between / 1'000'000);
    wanted.queue_pairs = !options.no_queue_pairs;
    wanted.symbols = options.symbols;
    wanted.tool_version = COLLWIRE_VERSION;
    const inspect::Inspection inspection = inspect::inspect(wanted);
    const std::string text =
        options.json ? inspect::render_json(inspection)
                     : inspect::render_text(inspection, {terminal_width(), options.rows});
    std::fwrite(text.data(), 1, text.size(), stdout);
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
        std::fputs("collwire inspect: cannot write to standard output\n", stderr);
        return EXIT_FAILED;
    }
    if (options.all && inspection.processes.empty())
        fmt::print(stderr, "collwire inspect: no process here runs NCCL{}\n",
                   geteuid() == 0 ? "" : ", or only root may see it. Fix: sudo");
    for (const inspect::Process &process : inspection.processes)
        if (!process.problem.empty()) {
            fmt::print(stderr, "collwire inspect: pid {}: {}\n", process.pid, process.problem);
            if (!options.all)
                return EXIT_FAILED;
        }
    return EXIT_DONE;
}

} // namespace

void add_inspect(CLI::App &app, int &status) {
    CLI::App *verb = app.add_subcommand(
        "inspect", "Look into running or hung processes: what NCCL waits for, and where");
    const auto options = std::make_shared<InspectOptions>();
    verb->add_option("pid", options->pids, "Processes")->check(CLI::Range(1, 4194304));
    verb->add_flag("--all", options->all, "Every process with NCCL in it");
    verb->add_flag("--json", options->json, "One JSON document (schema: docs/inspect.md)");
    verb->add_option("--between", options->between, "Time between the two looks")
        ->type_name("DURATION")
        ->capture_default_str();
    verb->add_option("--rows", options->rows, "Rows of the table of operations; 0: all")
        ->capture_default_str();
    add_symbols(*verb, options->symbols);
    verb->add_flag("--no-queue-pairs", options->no_queue_pairs,
                   "Do not ask the kernel for the state of queue pairs: each costs hardware a "
                   "command of some 100 us");
    verb->footer("Reads only: nothing is attached, stopped or written. Exit status: 0 done, "
                 "1 a process that was named could not be looked at, 2 usage.");
    verb->callback([options, &status] { status = run_inspect(*options); });
}

} // namespace collwire::cli
