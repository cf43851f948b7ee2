// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>

#include "correlate/base/exit_status.h"
#include "tools/cli/verb.h"

int main(int argc, char **argv) {
    using namespace collwire;
    CLI::App app{"collwire: which collective put which bytes on which wire"};
    app.set_version_flag("--version", "collwire " COLLWIRE_VERSION);
    app.require_subcommand(1);
    int status = EXIT_DONE;
    cli::add_doctor(app, status);
    cli::add_record(app, status);
    cli::add_dump(app, status);
    cli::add_topology(app, status);
    cli::add_report(app, status);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError &failure) {
        return app.exit(failure) == 0 ? EXIT_DONE : EXIT_USAGE;
    }
    return status;
}
