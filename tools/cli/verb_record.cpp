// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/exit_status.h"
#include "base/units.h"
#include "tools/cli/symbols_option.h"
#include "tools/cli/verb.h"
#include "userspace/capture/writer.h"
#include "userspace/record/machine.h"
#include "userspace/record/recorder.h"
#include "userspace/record/say.h"

namespace collwire::cli {
namespace {

struct Arguments {
    record::RecordOptions options;
    std::optional<std::string> duration;
    std::optional<std::string> interval;
    std::optional<std::string> keep;
    std::optional<std::string> max;
    std::vector<std::string> pids;
    std::string ring = "8MiB";
    std::string posts = "auto";
    bool no_wire = false;
    bool no_nccl = false;
};

Result<std::uint32_t> ring_bytes(const std::string &text) {
    auto bytes = parse_size_bytes(text);
    if (!bytes)
        return std::move(bytes).failure().in("--ring");
    const std::uint64_t size = *bytes;
    if (size < 4096 || size > (1u << 30) || (size & (size - 1)) != 0)
        return error(
            ErrorKind::Usage,
            fmt::format("--ring {}: not a power of two from 4KiB to 1GiB. Fix: --ring 8MiB", text));
    return static_cast<std::uint32_t>(size);
}

// Texts to numbers; the first that is none is the error.
Result<void> interpret(Arguments &arguments) {
    record::RecordOptions &options = arguments.options;
    const auto take = [](const std::string &flag, const std::optional<std::string> &text,
                         auto parse, std::uint64_t &into) -> Result<void> {
        if (!text)
            return {};
        auto parsed = parse(*text);
        if (!parsed)
            return std::move(parsed).failure().in(flag);
        if (*parsed == 0)
            return error(ErrorKind::Usage,
                         fmt::format("{} {}: must be more than 0. Fix: leave it out, or give "
                                     "more",
                                     flag, *text));
        into = *parsed;
        return {};
    };
    if (auto r = take("--duration", arguments.duration, parse_duration_ns, options.duration_ns); !r)
        return r;
    if (auto r = take("--interval", arguments.interval, parse_duration_ns, options.interval_ns); !r)
        return r;
    if (auto r = take("--keep", arguments.keep, parse_duration_ns, options.keep_ns); !r)
        return r;
    if (auto r = take("--max", arguments.max, parse_size_bytes, options.max_bytes); !r)
        return r;
    if (options.interval_ns < 10'000'000)
        return error(ErrorKind::Usage, fmt::format("--interval {}: port counters cannot be read "
                                                   "that often. Fix: at least 10ms",
                                                   *arguments.interval));
    if (arguments.max && options.max_bytes < capture::MIN_MAX_BYTES)
        return error(ErrorKind::Usage,
                     fmt::format("--max {}: too little for a capture. Fix: at least {}KiB",
                                 *arguments.max, capture::MIN_MAX_BYTES >> 10));
    for (const std::string &pid : arguments.pids) {
        auto process = record::check_process(pid);
        if (!process)
            return std::move(process).failure().in("--pid");
        options.pids.push_back(*process);
    }
    auto ring = ring_bytes(arguments.ring);
    if (!ring)
        return std::move(ring).failure();
    options.ring_bytes = *ring;
    options.wire = !arguments.no_wire;
    options.nccl = !arguments.no_nccl;
    options.posts = arguments.posts == "on"    ? record::PostsMode::On
                    : arguments.posts == "off" ? record::PostsMode::Off
                                               : record::PostsMode::Auto;
    return {};
}

} // namespace

void add_record(CLI::App &app, int &status, bool has_separator) {
    auto arguments = std::make_shared<Arguments>();
    record::RecordOptions &options = arguments->options;
    CLI::App *verb = app.add_subcommand(
        "record", "Record what every RDMA queue pair of this node sends and receives, and which of "
                  "NCCL's operations it is for");
    verb->add_option("-o,--output", options.directory, "Directory for the capture (mode 0600)")
        ->type_name("DIR")
        ->capture_default_str();
    verb->add_option("--duration", arguments->duration, "Stop after this time: 90s, 30m, 12h");
    CLI::Option *pids = verb->add_option("-p,--pid", arguments->pids,
                                         "Only queue pairs, sockets and NCCL of these processes")
                            ->type_name("PID")
                            ->delimiter(',');
    CLI::Option *posts =
        verb->add_option("--posts", arguments->posts,
                         "Count posted work requests: auto does so only where nothing cheaper "
                         "tells the bytes")
            ->check(CLI::IsMember({"auto", "on", "off"}))
            ->capture_default_str();
    auto *nccl = verb->add_option("--nccl", options.nccl_files,
                                  "A libnccl.so.2 that is yet to be loaded: probed from the start")
                     ->type_name("FILE")
                     ->allow_extra_args(false);
    auto *returns = verb->add_flag("--api-returns", options.api_returns,
                                   "Record what NCCL's calls return: one more trap a call");
    auto *local = verb->add_flag("--local-launches", options.local_launches,
                                 "Record NCCL's launches without anything for the network, too: "
                                 "one more trap a launch");
    auto *times = verb->add_flag("--network-times", options.network_times,
                                 "Record when NCCL's operations begin and end on each connection: "
                                 "two more traps for each");
    auto *warnings = verb->add_flag("--warnings", options.warnings,
                                    "Record each of NCCL's warnings: one more trap for each (up "
                                    "to NCCL 2.27 for all that it could print)");
    auto *symbols = add_symbols(*verb, options.symbols);
    verb->add_flag("--no-nccl", arguments->no_nccl,
                   "Do not look into NCCL: bytes of queue pairs, without their collectives")
        ->excludes(nccl)
        ->excludes(symbols)
        ->excludes(returns)
        ->excludes(local)
        ->excludes(times)
        ->excludes(warnings);
    verb->add_flag("--no-wire", arguments->no_wire,
                   "Do not count the frames of software devices, as if they were hardware");
    verb->add_flag("--counters-only", options.counters_only,
                   "Only devices, ports and their counters: no probes, needs no privileges")
        ->excludes(pids)
        ->excludes(posts);
    verb->add_option("--interval", arguments->interval,
                     "Between two readings of counters (without it 1s)");
    verb->add_option("--keep", arguments->keep, "Rotate: delete what is older than this");
    verb->add_option("--max", arguments->max, "Rotate: never use more disk than this");
    verb->add_flag("--full-cmdline", options.full_cmdline,
                   "Keep whole command lines of processes; they may hold secrets");
    verb->add_flag("--dry-run", options.dry_run,
                   "Print every probe that would be placed and what it costs; place none");
    verb->add_flag("--no-fentry", options.force_kprobes,
                   "Use kprobes even where the kernel has fentry");
    verb->add_option("--ring", arguments->ring, "Size of the ring buffer")->capture_default_str();
    verb->add_option("command", options.command,
                     "After --: a command, started when every probe is in; the recording ends with "
                     "it")
        ->type_name("CMD");
    verb->footer(
        "Exit status: 0 done, 1 failed, 2 usage, 3 not permitted, 4 unsupported, 5 "
        "finished with loss; with a command the greater of its status and the recording's.");
    verb->callback([arguments, has_separator, &status] {
        if (!arguments->options.command.empty() && !has_separator) {
            const std::string &word = arguments->options.command.front();
            record::say("{}: not expected. Fix: -o {} for a directory, -- {} for a command", word,
                        word, word);
            status = EXIT_USAGE;
            return;
        }
        if (auto interpreted = interpret(*arguments); !interpreted) {
            record::say("{}", interpreted.failure().message);
            status = exit_status_of(interpreted.failure());
            return;
        }
        status = run_record(arguments->options);
    });
}

} // namespace collwire::cli
