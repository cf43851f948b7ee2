// SPDX-License-Identifier: Apache-2.0
// Options and help of every verb; those of verbs that read files are in options_files.cpp. No other
// file includes CLI11: its templates cost 15 to 20 s per source file.
#include "tools/cli/options.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>
#include <ostream>
#include <string_view>
#include <utility>

#include "base/exit_status.h"
#include "tools/cli/command_tree.h"
#include "tools/cli/help.h"
#include "tools/cli/options_files.h"

namespace collwire::cli {
namespace {

constexpr std::size_t DESCRIPTION_COLUMNS = 66;
constexpr int PID_MAX = 4'194'304;

// Prints of each option its name, type, default and a wrapped description. CLI11 would add ranges
// and the names of all options that it excludes.
class HelpFormatter : public CLI::Formatter {
    std::string make_option_opts(const CLI::Option *option) const override {
        if (option->get_type_size() == 0)
            return {};
        std::string text = ' ' + option->get_type_name();
        text.resize(std::min(text.find(':'), text.size())); // the rest describes validators
        if (!option->get_default_str().empty())
            text += " (" + option->get_default_str() + ')';
        return text;
    }
    std::string make_option_desc(const CLI::Option *option) const override {
        return wrapped(option->get_description(), DESCRIPTION_COLUMNS);
    }
};

bool is_separator(std::string_view word) {
    return word == "--";
}

std::string usage_message(const CLI::App * /*app*/, const CLI::Error &failure) {
    std::string text = failure.what();
    while (text.ends_with('.') || text.ends_with('\n'))
        text.pop_back();
    return "collwire: " + text + ". Fix: see collwire --help, collwire VERB --help\n";
}

CLI::Option *add_symbols(CLI::App &verb, std::vector<std::string> &places) {
    return verb
        .add_option("--symbols", places,
                    "For a stripped NCCL: its .debug file, a saved layout (doctor --export-plan), "
                    "or an unstripped libnccl.so.2 of the same version; or a directory with such "
                    "files. /usr/lib/debug is searched anyway. May be repeated")
        ->type_name("PLACE")
        ->check(CLI::ExistingPath)
        ->allow_extra_args(false);
}

std::vector<CLI::Option *> add_choice(CLI::App &verb, inventory::ProcessChoice &choice) {
    return {verb.add_option("--container", choice.containers,
                            "The processes of these containers that run now, by id or its first "
                            "digits (podman ps, docker ps, crictl ps)")
                ->type_name("ID,...")
                ->delimiter(','),
            verb.add_option("--pod", choice.pods,
                            "The processes of these Kubernetes pods that run now, by uid (kubectl "
                            "get pod NAME -o jsonpath={.metadata.uid})")
                ->type_name("UID,...")
                ->delimiter(','),
            verb.add_option("--job", choice.jobs,
                            "The processes of these Slurm jobs, or steps, that run now on this "
                            "node")
                ->type_name("JOB[.STEP],...")
                ->delimiter(',')};
}

void add_doctor(CLI::App &app, std::optional<Command> &chosen) {
    auto command = std::make_shared<DoctorCommand>();
    CLI::App *verb = add_verb(
        app, "doctor", "Check what can be traced on this machine, what not, why, and how to fix it",
        HELP_DOCTOR);
    verb->add_flag("--json", command->json, "Print one JSON document (schema: docs/doctor.md)");
    verb->add_flag("--all", command->all,
                   "Print every check with what it found, also those that are ok");
    auto *nccl = verb->add_option("--nccl", command->nccl_file,
                                  "Check this libnccl.so.2 instead of the machine: which probes "
                                  "and fields are found in it (docs/nccl-layout.md)")
                     ->type_name("FILE");
    add_symbols(*verb, command->symbols)->needs(nccl);
    verb->add_option("--export-plan", command->export_directory,
                     "With --nccl: save the layout in this directory, by build-id. Give the "
                     "directory to --symbols where the same build is stripped")
        ->type_name("DIR")
        ->needs(nccl);
    verb->callback([command, &chosen] { chosen = *command; });
}

void add_nccl_options(CLI::App &verb, RecordCommand &command) {
    record::RecordOptions &options = command.options;
    auto *nccl = verb.add_option("--nccl", options.nccl_files,
                                 "Probe this libnccl.so.2 before any process loads it, so that no "
                                 "first call is missed. May be repeated")
                     ->type_name("FILE")
                     ->allow_extra_args(false);
    auto *returns = verb.add_flag("--api-returns", options.api_returns,
                                  "Record the result of each NCCL call, so that rejected calls "
                                  "are not counted. Cost: one more probe hit per call");
    auto *local = verb.add_flag("--local-launches", options.local_launches,
                                "Record launches inside one node, too: algorithm, protocol and "
                                "channels. Cost: one more probe hit per launch");
    auto *times = verb.add_flag("--network-times", options.network_times,
                                "Record start and completion time of each NCCL operation on each "
                                "connection. Without it completion is sampled once per interval. "
                                "Cost: two more probe hits per operation and connection");
    auto *warnings = verb.add_flag("--warnings", options.warnings,
                                   "Record every NCCL warning. Without it the last one is sampled "
                                   "once per interval. Cost: one more probe hit per warning; up "
                                   "to NCCL 2.27 per possible log line");
    auto *symbols = add_symbols(verb, options.symbols);
    verb.add_flag("--no-nccl", command.no_nccl,
                  "No NCCL probes: bytes of queue pairs without their operations")
        ->excludes(nccl)
        ->excludes(symbols)
        ->excludes(returns)
        ->excludes(local)
        ->excludes(times)
        ->excludes(warnings);
}

void add_record(CLI::App &app, bool has_separator, std::optional<Command> &chosen) {
    auto command = std::make_shared<RecordCommand>();
    command->has_separator = has_separator;
    record::RecordOptions &options = command->options;
    CLI::App *verb = add_verb(app, "record",
                              "Record the RDMA traffic of this node and the NCCL operations "
                              "that cause it",
                              HELP_RECORD);
    verb->add_option("-o,--output", options.directory,
                     "Directory for the capture (mode 0600). Existing files are kept")
        ->type_name("DIR")
        ->capture_default_str();
    verb->add_option("--duration", command->duration,
                     "Stop after this time: 90s, 30m, 12h. Default: at a signal, or when the "
                     "command exits")
        ->type_name("TIME");
    CLI::Option *pids = verb->add_option("-p,--pid", command->pids,
                                         "Record queue pairs, sockets and NCCL of these processes "
                                         "only. Their children are not included")
                            ->type_name("PID,...")
                            ->delimiter(',');
    const std::vector<CLI::Option *> choices = add_choice(*verb, command->choice);
    CLI::Option *posts =
        verb->add_option("--posts", command->posts,
                         "Count the work requests that programs post. auto: on for real NICs, off "
                         "for soft-RoCE, whose packets are counted instead")
            ->type_name("auto|on|off")
            ->check(CLI::IsMember({"auto", "on", "off"}))
            ->capture_default_str();
    CLI::Option *posts_slice =
        verb->add_option("--posts-slice", command->posts_slice,
                         "With --posts=auto: while all queue pairs here are NCCL's, count work "
                         "requests this long in each period, which verifies the bytes computed "
                         "from NCCL's operations. Default: 1s/60s; always: all the time")
            ->type_name("ON/PERIOD");
    CLI::Option *qp_source =
        verb->add_option("--qp-source", command->qp_source,
                         "Where queue pairs are read: kernel (ib_core), verbs (libibverbs in the "
                         "programs), both (ib_core, and what libibverbs shows is compared). auto: "
                         "kernel, or verbs where ib_core cannot be read")
            ->type_name("auto|kernel|verbs|both")
            ->check(CLI::IsMember({"auto", "kernel", "verbs", "both"}))
            ->capture_default_str();
    add_nccl_options(*verb, *command);
    CLI::Option *gpu =
        verb->add_flag("--gpu{always}", command->gpu,
                       "Record GPU kernels of processes with libcollwire_cupti.so (collwire run). "
                       "--gpu: always. --gpu=slices: 2 s a minute, on all nodes at once; "
                       "--gpu=slices:ON/PERIOD: other times. --gpu=signal: 2 s after each "
                       "SIGUSR1 to the recorder. --gpu=stall:10s: while an operation of NCCL has "
                       "made no step for 10 s");
    CLI::Option *inject =
        verb->add_option("--inject", command->inject,
                         "With --gpu: load libcollwire_cupti.so into these processes, which run "
                         "and were started without it. Each borrows one sleeping thread for less "
                         "than a millisecond. The library stays in the process, dormant")
            ->type_name("PID,...")
            ->delimiter(',')
            ->needs(gpu);
    CLI::Option *budget = verb->add_option(
        "--budget", command->budget,
        "Keep the time that probes take in recorded processes below this share of one CPU for "
        "each process that has NCCL communicators or posts work requests, measured while "
        "recording. Where more is needed, the dearest probes are taken off for good, and the "
        "capture names them");
    budget->type_name("PERCENT");
    verb->add_flag("--no-wire", command->no_wire,
                   "Do not count packets of software devices: soft-RoCE is treated like a NIC");
    verb->add_flag("--no-nvlink", command->no_nvlink,
                   "Do not start NVML, and do not read the NVIDIA driver's errors. While NVML "
                   "runs, a GPU cannot be reset");
    CLI::Option *counters_only =
        verb->add_flag("--counters-only", options.counters_only,
                       "Devices, ports and their counters only: no probes, needs no privilege. "
                       "Not with --pid, --container, --pod, --job, --posts or --gpu")
            ->excludes(pids)
            ->excludes(posts)
            ->excludes(posts_slice)
            ->excludes(qp_source)
            ->excludes(gpu)
            ->excludes(inject)
            ->excludes(budget);
    for (CLI::Option *choice : choices)
        counters_only->excludes(choice);
    verb->add_option("--interval", command->interval,
                     "Time between two samples of the counters; default 1s, 10ms or more")
        ->type_name("TIME");
    verb->add_option("--keep", command->keep, "Rotate: delete what is older than this: 30m, 2h")
        ->type_name("TIME");
    verb->add_option("--max", command->max,
                     "Rotate: use at most this much disk: 500MiB, 2GiB; 64KiB or more")
        ->type_name("SIZE");
    verb->add_flag("--full-cmdline", options.full_cmdline,
                   "Store whole command lines of processes; they may contain secrets");
    CLI::Option *dry_run = verb->add_flag(
        "--dry-run", options.dry_run, "Print every probe and its cost per hit, and attach none");
    verb->add_flag("--calibrate", options.calibrate,
                   "With --dry-run: measure for a second what probes cost on this machine, on "
                   "functions of collwire itself, and print the cost of an operation and a post")
        ->needs(dry_run);
    verb->add_flag("--no-fentry", options.force_kprobes,
                   "Use kprobes even where the kernel has fentry");
    verb->add_option("--ring", command->ring,
                     "Size of the ring buffer for events, a power of two from 4KiB to 1GiB")
        ->type_name("SIZE")
        ->capture_default_str();
    verb->add_option("command", options.command,
                     "After --: a command to start when every probe is attached. The recording "
                     "ends when it exits")
        ->type_name("CMD");
    verb->callback([command, &chosen] { chosen = *command; });
}

void add_run(CLI::App &app, bool has_separator, std::optional<Command> &chosen) {
    auto command = std::make_shared<RunCommand>();
    command->has_separator = has_separator;
    CLI::App *verb = add_verb(
        app, "run", "Start a command whose GPU kernels `record --gpu` can record", HELP_RUN);
    verb->add_flag("--nccl-profiler", command->nccl_profiler,
                   "Also be NCCL's profiler plugin, for times of NCCL's kernels where another tool "
                   "has CUPTI (experimental: a traced communicator may not end)");
    verb->add_option("command", command->command, "After --: the command")->type_name("CMD");
    verb->callback([command, &chosen] { chosen = *command; });
}

void add_inspect(CLI::App &app, std::optional<Command> &chosen) {
    auto command = std::make_shared<InspectCommand>();
    CLI::App *verb = add_verb(app, "inspect",
                              "Show what NCCL waits for in running or hung processes of this node",
                              HELP_INSPECT);
    verb->add_option("pid", command->pids, "Processes")
        ->type_name("")
        ->check(CLI::Range(1, PID_MAX));
    verb->add_flag("--all", command->all, "Every process that has NCCL loaded");
    add_choice(*verb, command->choice);
    verb->add_flag("--json", command->json, "Print one JSON document (schema: docs/inspect.md)");
    verb->add_option("--between", command->between,
                     "Time between the two samples of each process; 60s or less")
        ->type_name("TIME")
        ->capture_default_str();
    verb->add_option("--rows", command->rows, "Rows of the table of operations; 0: all")
        ->type_name("N")
        ->capture_default_str();
    add_symbols(*verb, command->symbols);
    verb->add_flag("--no-queue-pairs", command->no_queue_pairs,
                   "Do not query the state of queue pairs. Each query costs a NIC about 100 us");
    verb->callback([command, &chosen] { chosen = *command; });
}

std::unique_ptr<CLI::App> make_app(bool has_separator, std::optional<Command> &chosen) {
    auto app = std::make_unique<CLI::App>(
        "Shows which NCCL operation sent which bytes over which link. NCCL and the job stay "
        "unchanged",
        "collwire");
    app->formatter(std::make_shared<HelpFormatter>());
    app->set_help_flag("-h,--help", "Print this help");
    app->set_version_flag("--version", "collwire " COLLWIRE_VERSION, "Print the version");
    app->require_subcommand(1);
    app->failure_message(usage_message);
    app->footer(std::string(HELP_COLLWIRE));
    add_doctor(*app, chosen);
    add_record(*app, has_separator, chosen);
    add_run(*app, has_separator, chosen);
    add_dump(*app, chosen);
    add_topology(*app, chosen);
    add_report(*app, chosen);
    add_inspect(*app, chosen);
    add_diagnose(*app, chosen);
    return app;
}

OptionEntry entry_of(const CLI::Option &option) {
    OptionEntry entry;
    for (const std::string &name : option.get_snames())
        entry.names.push_back("-" + name);
    for (const std::string &name : option.get_lnames())
        entry.names.push_back("--" + name);
    entry.positional = entry.names.empty();
    if (entry.positional)
        entry.names.push_back(option.get_name(true));
    if (option.get_type_size() != 0) {
        const std::string type = option.get_type_name();
        entry.value = type.substr(0, type.find(':')); // the rest describes validators
    }
    // CLI11 prints a flag that takes a value as --flag{value}.
    entry.value_optional = option.get_name(false, true).find('{') != std::string::npos;
    entry.default_value = option.get_default_str();
    entry.description = option.get_description();
    entry.required = option.get_required();
    return entry;
}

CommandEntry entry_of(const CLI::App &app) {
    CommandEntry entry{app.get_name(), app.get_description(), app.get_footer(), {}, {}};
    for (const CLI::Option *option : app.get_options())
        entry.options.push_back(entry_of(*option));
    for (const CLI::App *verb : app.get_subcommands({}))
        entry.verbs.push_back(entry_of(*verb));
    return entry;
}

} // namespace

CommandEntry command_tree() {
    std::optional<Command> chosen;
    return entry_of(*make_app(false, chosen));
}

ParsedCommand parse_command(int argc, const char *const *argv, std::ostream &out,
                            std::ostream &err) {
    const char *const *end = argv + argc;
    const char *const *separator = std::find_if(argv, end, is_separator);
    if (separator != end && separator + 1 == end) {
        err << "collwire: nothing after --. Fix: give a command, or omit --\n";
        return {.command = {}, .status = EXIT_USAGE};
    }
    ParsedCommand parsed;
    const auto app = make_app(separator != end, parsed.command);
    try {
        app->parse(argc, argv);
    } catch (const CLI::ParseError &failure) {
        return {.command = {},
                .status = app->exit(failure, out, err) == 0 ? EXIT_DONE : EXIT_USAGE};
    }
    return parsed;
}

} // namespace collwire::cli
