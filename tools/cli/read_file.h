// SPDX-License-Identifier: Apache-2.0
// Files that the user names on the command line.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "base/result.h"

namespace collwire::cli {

// The first `limit_bytes` of a regular file, or as many as it has when it is opened: a capture may
// still grow. BadInput for a directory, FIFO, device or socket; NotPermitted where it may not be
// read. The message begins with the path.
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

// A directory stands for the *.cwc in it, sorted by name; any other path for itself. A file that is
// named twice is there once. Refused, as BadInput: a directory without a capture, and a path that
// does not exist.
[[nodiscard]] NamedCaptures expand_captures(const std::vector<std::string> &paths);

} // namespace collwire::cli
