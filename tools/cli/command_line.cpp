// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/command_line.h"

#include <exception>
#include <new>
#include <ostream>
#include <variant>

#include "base/exit_status.h"
#include "tools/cli/options.h"
#include "tools/cli/verbs.h"

namespace collwire::cli {
namespace {

struct Run {
    int operator()(const DoctorCommand &command) const { return run_doctor(command); }
    int operator()(const RecordCommand &command) const { return run_record(command); }
    int operator()(const RunCommand &command) const { return run_run(command); }
    int operator()(const DumpCommand &command) const { return run_dump(command); }
    int operator()(const TopologyCommand &command) const { return run_topology(command); }
    int operator()(const ReportCommand &command) const { return run_report(command); }
    int operator()(const InspectCommand &command) const { return run_inspect(command); }
    int operator()(const DiagnoseCommand &command) const { return run_diagnose(command); }
};

} // namespace

int run_command_line(int argc, const char *const *argv, std::ostream &out, std::ostream &err) {
    try {
        const ParsedCommand parsed = parse_command(argc, argv, out, err);
        return parsed.command ? std::visit(Run{}, *parsed.command) : parsed.status;
    } catch (const std::bad_alloc &) {
        err << "collwire: out of memory. Fix: give it a part of the time (--last 60s, or --from "
               "and --to) or fewer captures, or use a machine with more memory\n";
        return EXIT_FAILED;
    } catch (const std::exception &failure) {
        // An output stream that throws.
        err << "collwire: " << failure.what() << '\n';
        return EXIT_FAILED;
    }
}

} // namespace collwire::cli
