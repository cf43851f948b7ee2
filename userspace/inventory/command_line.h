// SPDX-License-Identifier: Apache-2.0
// The program that a process runs, from the bytes of /proc/PID/cmdline. Command lines hold secrets,
// so only the names of the program and the script are kept.
#pragma once

#include <string>
#include <string_view>

namespace collwire::inventory {

struct Program {
    std::string argv0;
    // The script of an interpreter: a file, or a module's name after -m; empty for -c and for
    // programs that are not interpreters.
    std::string script;
};

Program program_of(std::string_view cmdline);

// The arguments joined by spaces, at most limit_bytes. For --full-cmdline only.
std::string joined_command_line(std::string_view cmdline, std::size_t limit_bytes);

struct SlurmEnvironment {
    std::string job;
    std::string step;
};

// SLURM_JOB_ID and SLURM_STEP_ID from the bytes of /proc/PID/environ; no other variable is kept.
SlurmEnvironment slurm_environment(std::string_view environ);

} // namespace collwire::inventory
