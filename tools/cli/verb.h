// SPDX-License-Identifier: Apache-2.0
// The command line is git style: one verb a file, verb_NAME.cpp, each adds itself to the
// application.
#pragma once

namespace CLI {
class App;
}

namespace collwire::cli {

// Each adds its subcommand; when it was chosen and has run, `status` holds the exit status.
// `app` and `status` must outlive the parse.
void add_doctor(CLI::App &app, int &status);
// `has_separator`: the command line has `--`, behind which a command stands.
void add_record(CLI::App &app, int &status, bool has_separator);
void add_dump(CLI::App &app, int &status);
void add_topology(CLI::App &app, int &status);
void add_report(CLI::App &app, int &status);
void add_diagnose(CLI::App &app, int &status);
void add_inspect(CLI::App &app, int &status);

} // namespace collwire::cli
