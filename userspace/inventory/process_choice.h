// SPDX-License-Identifier: Apache-2.0
// Processes by the names that cluster tools have for them: container, Kubernetes pod, Slurm job.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace collwire::inventory {

struct ProcessChoice {
    std::vector<std::string> containers; // the id, or its first digits
    std::vector<std::string> pods;       // the uid, or its first digits
    std::vector<std::string> jobs;       // "4711", or "4711.0" for one step
    [[nodiscard]] bool empty() const { return containers.empty() && pods.empty() && jobs.empty(); }
};

// The pids of all processes in one of these, in rising order, as /proc below `root` has them ("" is
// the machine itself). Usage: a name is malformed, fits several containers or pods, or none that
// runs.
Result<std::vector<std::uint32_t>> choose_processes(const std::string &root,
                                                    const ProcessChoice &choice);

} // namespace collwire::inventory
