// SPDX-License-Identifier: Apache-2.0
// Reads the files named on the command line.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "base/result.h"

namespace collwire::cli {

// The first `limit_bytes` of a regular file, or its size at open: a capture may still grow.
// BadInput for a directory, FIFO, device or socket; NotPermitted without read permission. The
// message begins with the path.
[[nodiscard]] Result<std::vector<std::byte>>
read_file(const std::string &path,
          std::size_t limit_bytes = std::numeric_limits<std::size_t>::max());

struct NamedCaptures {
    struct Refused {
        std::string path;
        Error failure; // its message begins with the path
    };
    std::vector<std::string> files;
    std::vector<Refused> refused;
};

// A directory stands for its *.cwc files, sorted by name; any other path for itself. Duplicates are
// removed. Refused, as BadInput: a directory without a capture, and a path that does not exist.
[[nodiscard]] NamedCaptures expand_captures(const std::vector<std::string> &paths);

} // namespace collwire::cli
