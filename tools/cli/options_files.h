// SPDX-License-Identifier: Apache-2.0
// Options of the verbs that read files: dump, topology, report, diagnose.
#pragma once

#include <optional>
#include <string_view>

#include "tools/cli/options.h"

namespace CLI {
class App;
} // namespace CLI

namespace collwire::cli {

CLI::App *add_verb(CLI::App &app, const char *name, const char *description,
                   std::string_view footer);

void add_dump(CLI::App &app, std::optional<Command> &chosen);
void add_topology(CLI::App &app, std::optional<Command> &chosen);
void add_report(CLI::App &app, std::optional<Command> &chosen);
void add_diagnose(CLI::App &app, std::optional<Command> &chosen);

} // namespace collwire::cli
