// SPDX-License-Identifier: Apache-2.0
// Which processes are due to be searched for a library where no record of a mapping names them:
// young ones at each sample, others now and then. Reading the mappings of one takes 0.1 to 1 ms.
#pragma once

#include <map>
#include <vector>

#include <sys/types.h>

namespace collwire::process {

class ProcessPolls {
public:
    // To be called once per sample with all processes. Returns those that are due.
    std::vector<pid_t> due(const std::vector<pid_t> &pids);
    // All count as young again.
    void clear() { polls_.clear(); }

private:
    std::map<pid_t, unsigned> polls_; // of each process
};

} // namespace collwire::process
