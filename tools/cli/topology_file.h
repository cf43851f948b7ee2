// SPDX-License-Identifier: Apache-2.0
// Topology files, and what other tools wrote that becomes one.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace collwire::cli {

// The text of a file of at most 512 MiB: JSON takes about ten times its size while it is read.
// Errors as read_file.
[[nodiscard]] Result<std::string> read_topology_text(const std::string &path);

// What text is that is no topology file, and what to do with it; empty where that is not known.
[[nodiscard]] std::string other_format_hint(std::string_view text);

} // namespace collwire::cli
