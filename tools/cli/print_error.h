// SPDX-License-Identifier: Apache-2.0
// Lines on standard error.
#pragma once

#include <cstdio>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/foreign_text.h"

namespace collwire::cli {

// One line, whose format ends with a line end: paths and names in it may be anybody's.
template <typename... Args> void print_error(fmt::format_string<Args...> format, Args &&...args) {
    std::string line = fmt::format(format, std::forward<Args>(args)...);
    if (line.ends_with('\n'))
        line.pop_back();
    fmt::print(stderr, "{}\n", escaped(line));
}

} // namespace collwire::cli
