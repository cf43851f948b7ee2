// SPDX-License-Identifier: Apache-2.0
// Files that the user names on the command line.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "correlate/base/result.h"

namespace collwire::cli {

// The bytes of a regular file, as many as it has when it is opened: a capture may still grow.
// BadInput for a directory, FIFO, device or socket; NotPermitted where it may not be read. The
// message begins with the path.
[[nodiscard]] Result<std::vector<std::byte>> read_file(const std::string &path);

// A directory stands for the *.cwc in it, sorted by name; any other path for itself. A file that is
// named twice is there once. BadInput for a directory without a capture, and for a path that does
// not exist.
[[nodiscard]] Result<std::vector<std::string>>
expand_captures(const std::vector<std::string> &paths);

} // namespace collwire::cli
