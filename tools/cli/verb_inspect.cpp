// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <sys/ioctl.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/exit_status.h"
#include "base/units.h"
#include "correlate/inspect/json.h"
#include "correlate/inspect/text.h"
#include "tools/cli/print_error.h"
#include "tools/cli/verbs.h"
#include "userspace/foreign/foreign.h"
#include "userspace/inspect/inspect.h"
#include "userspace/loader/privileges.h"

namespace collwire::cli {
namespace {

constexpr std::uint64_t BETWEEN_MAX_NS = 60'000'000'000;

std::size_t terminal_width() {
    winsize size{};
    if (isatty(STDOUT_FILENO) == 1 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 &&
        size.ws_col >= 80)
        return size.ws_col;
    return 132;
}

} // namespace

int run_inspect(const InspectCommand &command) {
    const auto between = parse_duration_ns(command.between);
    if (!between || *between > BETWEEN_MAX_NS) {
        print_error("collwire inspect: --between {}: {}\n", command.between,
                    between ? "longer than 60s. Fix: --between 200ms" : between.failure().message);
        return EXIT_USAGE;
    }
    const bool chooses = !command.choice.empty();
    const int ways = static_cast<int>(command.all) + static_cast<int>(!command.pids.empty()) +
                     static_cast<int>(chooses);
    if (ways != 1) {
        print_error("collwire inspect: {}. Fix: collwire inspect PID, or --all, or --container, "
                    "--pod, --job\n",
                    ways == 0 ? "no process given"
                              : "PID, --all, and --container, --pod or --job exclude each other");
        return EXIT_USAGE;
    }
    inspect::Options wanted;
    wanted.pids = command.pids;
    if (chooses) {
        const auto chosen = inventory::choose_processes("", command.choice);
        if (!chosen) {
            print_error("collwire inspect: {}\n", chosen.failure().message);
            return exit_status_of(chosen.failure());
        }
        wanted.pids.assign(chosen->begin(), chosen->end());
        wanted.only_with_nccl = true;
    }
    wanted.between = std::chrono::milliseconds(*between / 1'000'000);
    wanted.queue_pairs = !command.no_queue_pairs;
    wanted.symbols = command.symbols;
    wanted.tool_version = COLLWIRE_VERSION;
    const inspect::Inspection inspection = inspect::inspect(wanted);
    for (const std::string &line : foreign::take_news())
        print_error("collwire inspect: {}\n", line);
    const std::string text =
        command.json ? inspect::render_json(inspection)
                     : inspect::render_text(inspection, {terminal_width(), command.rows});
    std::fwrite(text.data(), 1, text.size(), stdout);
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
        std::fputs("collwire inspect: cannot write to standard output\n", stderr);
        return EXIT_FAILED;
    }
    if (command.all && inspection.processes.empty())
        print_error("collwire inspect: no process with NCCL found on this node{}{}\n",
                    geteuid() == 0 ? "" : " that this user may read. Fix: sudo",
                    loader::in_pid_namespace()
                        ? ". This pid namespace is a container's own: processes outside it are not "
                          "visible. Fix: run it outside the container, or with --pid=host "
                          "(hostPID: true)"
                        : "");
    if (chooses && inspection.processes.empty()) {
        print_error("collwire inspect: none of the {} chosen processes has NCCL loaded. Fix: "
                    "collwire inspect --all lists those that have\n",
                    wanted.pids.size());
        return EXIT_FAILED;
    }
    for (const inspect::Process &process : inspection.processes)
        if (!process.problem.empty()) {
            print_error("collwire inspect: pid {}: {}\n", process.pid, process.problem);
            if (!command.all && !chooses)
                return EXIT_FAILED;
        }
    return EXIT_DONE;
}

} // namespace collwire::cli
