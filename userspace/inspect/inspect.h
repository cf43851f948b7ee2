// SPDX-License-Identifier: Apache-2.0
// Looks into processes with NCCL in them, twice. Reads only: nothing is attached, stopped or
// written.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <sys/types.h>

#include "correlate/inspect/inspection.h"

namespace collwire::inspect {

struct Options {
    std::vector<pid_t> pids;     // empty: every process with NCCL in it
    bool only_with_nccl = false; // leave out those of `pids` that have none
    std::chrono::milliseconds between{200};
    // Ask the kernel for the state of every queue pair of the node: some 100 us each on hardware.
    bool queue_pairs = true;
    std::vector<std::string> symbols; // places of debug files of stripped NCCL
    std::string tool_version;
};

// What each process was doing, judged. A process that cannot be read, or ends meanwhile, is there
// with its `problem`.
Inspection inspect(const Options &options);

} // namespace collwire::inspect
