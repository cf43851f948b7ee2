// SPDX-License-Identifier: Apache-2.0
// Samples how far the connections of NCCL are, and tells what changed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "collwire/nccl_connection_records.h"
#include "collwire/nccl_layout.h"
#include "userspace/nccl/memory/step_counters.h"

namespace collwire {

class NcclSteps {
public:
    // `is_lasting`: it may outlive the communicator that it was told of with. `is_begun_only`: this
    // NCCL counts an operation when it begins, not when it is done.
    void add(const cw_nccl_connection &connection, const cw_nccl_layout &layout, bool is_lasting,
             bool is_begun_only);
    void forget(std::uint32_t tgid) { processes_.erase(tgid); }
    void forget(std::uint32_t tgid, std::uint64_t comm);
    // Those that are not as they were told of; all, with `everything`.
    std::vector<cw_nccl_steps> sample(bool everything);

private:
    struct Connection {
        nccl::StepCounter counter;
        std::uint64_t comm = 0; // with which it ends; 0: none
        cw_nccl_steps told{};
        std::uint64_t same_ns = 0; // the last reading that was as told
    };
    struct Process {
        std::uint32_t state_offset = CW_NCCL_NO_FIELD;
        std::map<std::uint64_t, Connection> connections; // by address
    };

    static void sample(std::uint32_t tgid, Process &process, bool everything,
                       std::vector<cw_nccl_steps> &into);

    std::map<std::uint32_t, Process> processes_;
};

} // namespace collwire
