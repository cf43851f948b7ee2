// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/command_line.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <exception>
#include <ostream>
#include <string>
#include <string_view>

#include "base/exit_status.h"
#include "tools/cli/verb.h"

namespace collwire::cli {
namespace {

bool is_separator(std::string_view word) {
    return word == "--";
}

std::string usage_message(const CLI::App * /*app*/, const CLI::Error &failure) {
    std::string text = failure.what();
    while (text.ends_with('.') || text.ends_with('\n'))
        text.pop_back();
    return "collwire: " + text + ". Fix: see collwire --help, collwire VERB --help\n";
}

} // namespace

int run_command_line(int argc, const char *const *argv, std::ostream &out, std::ostream &err) {
    CLI::App app{"collwire: which collective put which bytes on which wire"};
    app.set_version_flag("--version", "collwire " COLLWIRE_VERSION);
    app.require_subcommand(1);
    app.failure_message(usage_message);
    int status = EXIT_DONE;
    add_doctor(app, status);
    const char *const *end = argv + argc;
    const char *const *separator = std::find_if(argv, end, is_separator);
    if (separator != end && separator + 1 == end) {
        err << "collwire: nothing after --. Fix: give a command, or leave -- out\n";
        return EXIT_USAGE;
    }
    add_record(app, status, separator != end);
    add_dump(app, status);
    add_topology(app, status);
    add_report(app, status);
    add_inspect(app, status);
    add_diagnose(app, status);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError &failure) {
        return app.exit(failure, out, err) == 0 ? EXIT_DONE : EXIT_USAGE;
    } catch (const std::exception &failure) {
        // Out of memory, or an output that cannot be written to.
        err << "collwire: " << failure.what() << '\n';
        return EXIT_FAILED;
    }
    return status;
}

} // namespace collwire::cli
