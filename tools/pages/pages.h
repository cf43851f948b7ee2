// SPDX-License-Identifier: Apache-2.0
// Manual pages and bash completion, from the tree of verbs and options.
#pragma once

#include <string>
#include <vector>

#include "tools/cli/command_tree.h"

namespace collwire::pages {

struct ManualPage {
    std::string file; // "collwire-topology-import.1"
    std::string text; // roff, macro package `man`
};

// One page a verb, the program's own first. Without a date: the same sources give the same bytes.
[[nodiscard]] std::vector<ManualPage> manual_pages(const cli::CommandEntry &program,
                                                   const std::string &version);

// A script for bash 4.1 or later; needs no bash-completion functions.
[[nodiscard]] std::string bash_completion(const cli::CommandEntry &program);

} // namespace collwire::pages
