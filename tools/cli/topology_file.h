// SPDX-License-Identifier: Apache-2.0
// Reads topology files and the output of other tools that can be imported.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace collwire::cli {

// The text of a file of 512 MiB or less: parsing JSON takes about ten times its size in memory.
// Errors as in read_file.
[[nodiscard]] Result<std::string> read_topology_text(const std::string &path);

// For text that is not a topology file: its format and a fix. Empty for an unknown format.
[[nodiscard]] std::string other_format_hint(std::string_view text);

} // namespace collwire::cli
