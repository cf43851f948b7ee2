// SPDX-License-Identifier: Apache-2.0
// NCCL's count of steps of each connection: how far its operations are, without a probe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "collwire/nccl_connection_records.h"
#include "collwire/nccl_layout.h"
#include "userspace/process/process_view.h"

namespace collwire::nccl {

// Where a connection of a process has its count.
struct StepCounter {
    std::uint64_t resources_at = 0, resources = 0;
    std::uint64_t net_comm_at = 0, net_comm = 0;
    std::uint64_t steps_at = 0;
    std::uint64_t appended_at = 0; // what was given to the proxy last, 0 there: all of it is done
    bool is_shared = false;        // with other connections: what was given may be theirs
};

struct StepReading {
    std::uint64_t steps = 0;
    bool is_idle = false; // all operations that are in `steps` are done
    bool is_busy = false; // the last one of them is not
};

// Nothing: it is not there, or not of a network.
std::optional<StepCounter> find_step_counter(const ProcessView &process,
                                             const cw_nccl_layout &layout,
                                             const cw_nccl_connection &connection);

// In the order of `counters`; nothing for a connection that is not there any more.
// `state_offset`: of ncclProxyArgs.state, CW_NCCL_NO_FIELD where is_busy is not to be told.
std::vector<std::optional<StepReading>> read_step_counters(const ProcessView &process,
                                                           std::span<const StepCounter> counters,
                                                           std::uint32_t state_offset);

} // namespace collwire::nccl
