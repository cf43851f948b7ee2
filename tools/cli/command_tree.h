// SPDX-License-Identifier: Apache-2.0
// The verbs and options as data, from the declarations that parse the command line: for manual
// pages and completion, which therefore cannot differ from `--help`.
#pragma once

#include <string>
#include <vector>

namespace collwire::cli {

struct OptionEntry {
    std::vector<std::string> names; // "-o", "--output"; of a positional argument its name
    std::string value;              // what follows it: "DIR", "auto|on|off"; empty: nothing
    std::string default_value;      // empty: none is shown
    std::string description;        // one paragraph
    bool positional = false;
    bool required = false;
    bool value_optional = false; // `--gpu` and `--gpu=slices` are both valid
};

struct CommandEntry {
    std::string name; // "collwire", "record"
    std::string description;
    std::string footer; // text with examples and exit statuses, its lines as in `--help`
    std::vector<OptionEntry> options;
    std::vector<CommandEntry> verbs;
};

[[nodiscard]] CommandEntry command_tree();

} // namespace collwire::cli
