// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace collwire::record {

// Writes the line and a line end to standard error, at once. A full, closed or broken standard
// error is no error: a recording must not end because of it.
void say_line(const std::string &text);

// The same with "collwire: " before it.
template <typename... Args> void say(fmt::format_string<Args...> format, Args &&...args) {
    say_line("collwire: " + fmt::format(format, std::forward<Args>(args)...));
}

} // namespace collwire::record
