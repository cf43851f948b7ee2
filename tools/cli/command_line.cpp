// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/command_line.h"

#include <CLI/CLI.hpp>

#include <exception>
#include <ostream>

#include "correlate/base/exit_status.h"
#include "tools/cli/verb.h"

namespace collwire::cli {

int run_command_line(int argc, const char *const *argv, std::ostream &out, std::ostream &err) {
    CLI::App app{"collwire: which collective put which bytes on which wire"};
    app.set_version_flag("--version", "collwire " COLLWIRE_VERSION);
    app.require_subcommand(1);
    int status = EXIT_DONE;
    add_doctor(app, status);
    add_record(app, status);
    add_dump(app, status);
    add_topology(app, status);
    add_report(app, status);
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
