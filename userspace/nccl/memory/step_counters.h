// SPDX-License-Identifier: Apache-2.0
// Reads NCCL's step counter of each connection: how far its operations are.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "collwire/nccl_connection_records.h"
#include "collwire/nccl_layout.h"
#include "userspace/process/process_view.h"

namespace collwire::nccl {

// Addresses of a connection's counter.
struct StepCounter {
    std::uint64_t resources_at = 0, resources = 0;
    std::uint64_t net_comm_at = 0, net_comm = 0;
    std::uint64_t steps_at = 0;
    std::uint64_t appended_at =
        0;                  // the last operation given to the proxy; 0 there: all are complete
    bool is_shared = false; // with other connections: the last operation may be theirs
};

struct StepReading {
    std::uint64_t steps = 0;
    bool is_idle = false; // all operations in `steps` are complete
    bool is_busy = false; // the last one of them is in flight
};

// Empty: not there, or not of a network.
std::optional<StepCounter> find_step_counter(const process::ProcessView &process,
                                             const cw_nccl_layout &bpf_layout,
                                             const cw_nccl_connection &connection);

// In the order of `counters`; no value for a connection that no longer exists. `state_offset`: of
// ncclProxyArgs.state; with CW_NCCL_NO_FIELD is_busy stays false.
std::vector<std::optional<StepReading>> read_step_counters(const process::ProcessView &process,
                                                           std::span<const StepCounter> counters,
                                                           std::uint32_t state_offset);

} // namespace collwire::nccl
