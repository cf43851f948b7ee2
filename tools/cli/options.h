// SPDX-License-Identifier: Apache-2.0
// The command line as plain structs, one per verb. The verbs read these and not the argument
// parser.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <iosfwd>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "userspace/inventory/process_choice.h"
#include "userspace/record/options.h"

namespace collwire::cli {

struct DoctorCommand {
    bool json = false;
    bool all = false;      // checks that are ok, too
    std::string nccl_file; // empty: check this machine
    std::vector<std::string> symbols;
    std::string export_directory; // empty: print the layout
};

// Durations, sizes and pids are still text: run_record() converts them into `options`.
struct RecordCommand {
    record::RecordOptions options;
    std::optional<std::string> duration;
    std::optional<std::string> interval;
    std::optional<std::string> keep;
    std::optional<std::string> max;
    std::vector<std::string> pids;
    inventory::ProcessChoice choice; // of more processes
    std::string ring = "8MiB";
    std::optional<std::string> budget;
    std::string posts = "auto";
    std::optional<std::string> posts_slice;
    std::string qp_source = "auto";
    std::string gpu; // empty: no trace of GPU kernels
    std::vector<std::string> inject;
    bool no_wire = false;
    bool no_nccl = false;
    bool no_nvlink = false;
    bool has_separator = false; // `--` stands before the command to start
};

struct RunCommand {
    std::vector<std::string> command;
    bool has_separator = false; // `--` stands before the command
    bool nccl_profiler = false;
};

struct DumpCommand {
    std::vector<std::string> paths;
    std::vector<std::string> kinds; // empty: all
};

enum class TopologyAction { Check, Show, Import };

struct TopologyCommand {
    TopologyAction action = TopologyAction::Check;
    std::string file;               // check, show
    std::string host;               // show; empty: the whole fabric
    std::string format;             // import; empty: detect it
    std::vector<std::string> files; // import
    std::vector<std::string> hosts; // import; one per file, or none
    std::string out;                // import; empty: standard output
};

// What is read of captures; texts, as they were given.
struct Selection {
    std::string from, to, last, job; // empty: not given
    [[nodiscard]] bool has_window() const { return !from.empty() || !to.empty() || !last.empty(); }
};

struct ReportCommand {
    Selection selection;
    std::vector<std::string> paths;
    std::string topology;             // empty: none
    std::string json;                 // empty: none; "-": standard output
    std::string sqlite;               // empty: none
    std::string find;                 // empty: none
    std::string every;                // a duration; empty: one report of everything
    std::vector<std::string> against; // empty: none
    Selection against_selection;
    std::size_t rows = 20;
    bool detail = false; // in the JSON and SQLite file
};

struct InspectCommand {
    std::vector<pid_t> pids;
    inventory::ProcessChoice choice; // instead of pids
    std::vector<std::string> symbols;
    bool all = false;
    bool json = false;
    bool no_queue_pairs = false;
    std::size_t rows = 16; // 0: all
    std::string between = "200ms";
};

struct DiagnoseCommand {
    Selection selection;
    std::string part = "auto"; // of captures: auto, whole, tail
    std::string core = "auto"; // that reads them: auto, model
    std::vector<std::string> files;
    bool json = false;
};

using Command = std::variant<DoctorCommand, RecordCommand, RunCommand, DumpCommand, TopologyCommand,
                             ReportCommand, InspectCommand, DiagnoseCommand>;

// What the words of a command line ask for: a verb to run, or nothing more than `status`.
struct ParsedCommand {
    std::optional<Command> command;
    int status = 0;
};

// The program's name comes first in `argv`. Help goes to `out`, an error in the words to `err`.
[[nodiscard]] ParsedCommand parse_command(int argc, const char *const *argv, std::ostream &out,
                                          std::ostream &err);

} // namespace collwire::cli
