// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>

namespace collwire::cli {

// Parses the words of a command line, the program's name first, and runs the verb that they name.
// `out` and `err` get the help texts and what is wrong with the words. Returns the exit status
// (correlate/base/exit_status.h).
int run_command_line(int argc, const char *const *argv, std::ostream &out, std::ostream &err);

} // namespace collwire::cli
