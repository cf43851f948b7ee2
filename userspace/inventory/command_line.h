// SPDX-License-Identifier: Apache-2.0
// What program a process runs, from the bytes of /proc/PID/cmdline. Command lines hold secrets, so
// nothing but the program's name and the script's name is taken from them.
#pragma once

#include <string>
#include <string_view>

namespace collwire::inventory {

struct Program {
    std::string argv0;
    // What an interpreter runs: a file, or a module's name after -m; empty for -c and for anything
    // that is not an interpreter.
    std::string script;
};

Program program_of(std::string_view cmdline);

// The arguments with a space between them, at most limit_bytes. For --full-cmdline only.
std::string joined_command_line(std::string_view cmdline, std::size_t limit_bytes);

struct SlurmEnvironment {
    std::string job;
    std::string step;
};

// SLURM_JOB_ID and SLURM_STEP_ID out of the bytes of /proc/PID/environ; no other variable is kept.
SlurmEnvironment slurm_environment(std::string_view environ);

} // namespace collwire::inventory
