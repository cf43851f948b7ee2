// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>

namespace collwire::cli {

// Parses a command line, with the program name first, and runs its verb. Help goes to `out`, usage
// errors to `err`. Returns the exit status (base/exit_status.h).
int run_command_line(int argc, const char *const *argv, std::ostream &out, std::ostream &err);

} // namespace collwire::cli
