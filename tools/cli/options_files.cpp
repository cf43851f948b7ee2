// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/options_files.h"

#include <CLI/CLI.hpp>

#include <memory>
#include <string_view>

#include "correlate/capture/kinds.h"
#include "correlate/topology/import/importer.h"
#include "tools/cli/help.h"

namespace collwire::cli {
namespace {

constexpr std::size_t ROWS_MAX = 1'000'000;

} // namespace

CLI::App *add_verb(CLI::App &app, const char *name, const char *description,
                   std::string_view footer) {
    CLI::App *verb = app.add_subcommand(name, description);
    verb->footer(std::string(footer));
    return verb;
}

void add_dump(CLI::App &app, std::optional<Command> &chosen) {
    auto command = std::make_shared<DumpCommand>();
    CLI::App *verb =
        add_verb(app, "dump", "Print every record of captures as one line of JSON", help_dump());
    verb->add_option("PATH", command->paths, "Capture files; a directory stands for its *.cwc")
        ->type_name("")
        ->required();
    std::vector<std::string> names;
    for (const auto &kind : capture::kind_names())
        names.emplace_back(kind.name);
    verb->add_option("--kind", command->kinds, "Only records of this kind. May be repeated")
        ->type_name("KIND")
        ->check(CLI::IsMember(names))
        ->allow_extra_args(false);
    verb->callback([command, &chosen] { chosen = *command; });
}

void add_topology(CLI::App &app, std::optional<Command> &chosen) {
    auto command = std::make_shared<TopologyCommand>();
    CLI::App *verb =
        add_verb(app, "topology",
                 "Check, show or import the file that describes switches and ports", HELP_TOPOLOGY);
    verb->require_subcommand(1);
    const auto choose = [command, &chosen](TopologyAction action) {
        return [command, &chosen, action] {
            command->action = action;
            chosen = *command;
        };
    };

    CLI::App *check = add_verb(*verb, "check", "Report errors and warnings in a topology file",
                               HELP_TOPOLOGY_CHECK);
    check->add_option("FILE", command->file, "Topology file")->type_name("")->required();
    check->callback(choose(TopologyAction::Check));

    CLI::App *show =
        add_verb(*verb, "show", "Print switches, their tree, and hosts", HELP_TOPOLOGY_SHOW);
    show->add_option("FILE", command->file, "Topology file")->type_name("")->required();
    show->add_option("--host", command->host, "Only the ports of this host")->type_name("HOST");
    show->callback(choose(TopologyAction::Show));

    CLI::App *import =
        add_verb(*verb, "import", "Make a topology file from the output of another tool",
                 HELP_TOPOLOGY_IMPORT);
    std::vector<std::string> names;
    std::string choice;
    for (const auto &importer : topology::importers()) {
        names.emplace_back(importer.name);
        choice += (choice.empty() ? "" : "|") + names.back();
    }
    import
        ->add_option("FILE", command->files,
                     "Output of the tool; several files become one topology")
        ->type_name("")
        ->required();
    import->add_option("--format", command->format, "The tool that wrote it. Default: detected")
        ->type_name(choice)
        ->check(CLI::IsMember(names));
    import
        ->add_option("--host", command->hosts,
                     "Host that the output is from, for lldpctl; once per file, in the order of "
                     "the files, before or after them")
        ->type_name("HOST")
        ->allow_extra_args(false);
    import->add_option("-o,--output", command->out, "File to write. Default: standard output")
        ->type_name("FILE");
    import->callback(choose(TopologyAction::Import));
}

namespace {

// What is read of captures.
void add_selection(CLI::App &verb, Selection &selection) {
    verb.add_option(
            "--from", selection.from,
            "Only from this time on: 2026-11-27T14:05:00Z or with an offset (+01:00), local "
            "time without one, or 14:05[:30] on the recording's last day that has it")
        ->type_name("TIME");
    auto *to = verb.add_option("--to", selection.to, "Only before this time; as --from");
    to->type_name("TIME");
    verb.add_option("--last", selection.last,
                    "Only the last part, before --to or the end of the recording: 90s, 5m")
        ->type_name("DURATION")
        ->excludes("--from");
    verb.add_option("--job", selection.job,
                    "Only processes of this Slurm job (4711, 4711.0), Kubernetes pod (uid) or "
                    "container (id); of the last two the first digits are enough")
        ->type_name("ID");
}

} // namespace

namespace {

std::string is_not_empty(const std::string &text) {
    return text.empty() ? "needs a duration, 10s for example" : "";
}

} // namespace

void add_report(CLI::App &app, std::optional<Command> &chosen) {
    auto command = std::make_shared<ReportCommand>();
    CLI::App *verb = add_verb(app, "report",
                              "Print which NCCL operation sent which bytes where, from the "
                              "captures of all nodes",
                              HELP_REPORT);
    verb->add_option("PATH", command->paths, "Capture files; a directory stands for its *.cwc")
        ->type_name("")
        ->required();
    add_selection(*verb, command->selection);
    verb->add_option("--topology", command->topology,
                     "Topology file, for bytes by switch tier (see collwire topology)")
        ->type_name("FILE");
    verb->add_option("--json", command->json,
                     "Also write everything as JSON to this file; - prints JSON instead of text")
        ->type_name("FILE");
    verb->add_option("--sqlite", command->sqlite,
                     "Also write everything as tables of an SQLite file (docs/rows.md)")
        ->type_name("FILE");
    verb->add_option("--find", command->find,
                     "Print the operations that a line of PyTorch's NCCL watchdog or flight "
                     "recorder can be about, and which ranks called, launched and ended them; "
                     "nothing else")
        ->type_name("LINE")
        ->excludes("--sqlite");
    auto *against =
        verb->add_option("--against", command->against,
                         "Print what is different from this earlier run, causes first, and nothing "
                         "else: captures, or directories of them. Record both with "
                         "--network-times. May be repeated (docs/against.md)")
            ->type_name("PATH")
            ->allow_extra_args(false)
            ->excludes("--sqlite")
            ->excludes("--find");
    verb->add_option("--against-job", command->against_selection.job,
                     "With --against: the job of the earlier run; --job is of the other one alone")
        ->type_name("ID")
        ->needs(against);
    verb->add_option("--against-from", command->against_selection.from,
                     "With --against: the earlier run from this time on; without it and "
                     "--against-to the times given for the other one are of both")
        ->type_name("TIME")
        ->needs(against);
    verb->add_option("--against-to", command->against_selection.to,
                     "With --against: the earlier run before this time")
        ->type_name("TIME")
        ->needs(against);
    auto *every = verb->add_option(
        "--every", command->every,
        "Print a line for each interval of this length (10s, 1m): operations, bytes by "
        "tier, the busiest NIC, waits, late ranks, port incidents; nothing else. Reads "
        "captures of any length (docs/intervals.md)");
    every->type_name("DURATION")->check(is_not_empty)->excludes("--find")->excludes(against);
    verb->add_option("--rows", command->rows, "Rows of long tables, 1 or more")
        ->type_name("N")
        ->capture_default_str()
        ->check(CLI::Range(std::size_t{1}, ROWS_MAX));
    verb->add_flag("--detail", command->detail,
                   "With --json or --sqlite: also bytes and times of each rank for each operation")
        ->excludes(every);
    verb->callback([command, &chosen] { chosen = *command; });
}

void add_diagnose(CLI::App &app, std::optional<Command> &chosen) {
    auto command = std::make_shared<DiagnoseCommand>();
    CLI::App *verb = add_verb(app, "diagnose",
                              "Name the rank that others wait for and the cause, from the inspect "
                              "files of all nodes, or from the captures of a job that is gone",
                              HELP_DIAGNOSE);
    verb->add_option("files", command->files,
                     "Files written by collwire inspect --json; captures, or directories "
                     "of them")
        ->type_name("")
        ->required();
    add_selection(*verb, command->selection);
    verb->add_option("--read", command->part,
                     "How much of captures to read: whole; tail: the last part, which shows where "
                     "each rank stood; auto: the tail of more than 64 MiB")
        ->type_name("PART")
        ->capture_default_str()
        ->check(CLI::IsMember({"auto", "whole", "tail"}));
    verb->add_option("--core", command->core,
                     "How to read captures: model: all of what is read in memory, as report does; "
                     "auto: as a stream, and by the model where that cannot tell")
        ->type_name("CORE")
        ->capture_default_str()
        ->check(CLI::IsMember({"auto", "model"}));
    verb->add_flag("--json", command->json, "Print one JSON document (schema: docs/diagnose.md)");
    verb->callback([command, &chosen] { chosen = *command; });
}

} // namespace collwire::cli
