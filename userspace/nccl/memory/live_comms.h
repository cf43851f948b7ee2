// SPDX-License-Identifier: Apache-2.0
// The communicators of a process and their connections, out of its memory, without having seen it
// start. From 2.24 on: before, no variable leads to them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_connection_records.h"
#include "collwire/nccl_layout.h"
#include "userspace/nccl/layout/library_layout.h"
#include "userspace/process/process_view.h"

namespace collwire::nccl {

// Where the file's addresses are in the process: add it to them. Nothing: the process has not
// mapped the code that the plan's probes are in. `mapping` is one of the file.
std::optional<std::uint64_t> load_bias(const Plan &plan, const Mapping &mapping);

struct LiveComm {
    cw_nccl_comm comm{}; // without time, process and image
    // Those that are connected and of a network, without time and process.
    std::vector<cw_nccl_connection> connections;
};

struct LiveComms {
    std::vector<LiveComm> comms;
    bool is_cut = false; // there was more than is looked at
};

// Those that are ready for use. Whatever the process has there, it is bounded in time and memory;
// what could not be read is left out.
LiveComms read_comms(const ProcessView &process, const Plan &plan, const cw_nccl_layout &layout,
                     std::uint64_t bias);

// The same of communicators at known addresses.
LiveComms read_comms_at(const ProcessView &process, const Plan &plan, const cw_nccl_layout &layout,
                        std::uint64_t bias, std::span<const std::uint64_t> addresses);

// Whether it is what it was when it was read.
bool is_there(const ProcessView &process, const Plan &plan, const cw_nccl_layout &layout,
              std::uint64_t bias, const cw_nccl_comm &comm);

// How much a communicator has started by now, into `comm`.
void read_counts(const ProcessView &process, const Plan &plan, const cw_nccl_layout &layout,
                 cw_nccl_comm &comm);

// One connection at a known address, in as many records as its endpoints need, without time,
// process and communicator. `proxy_state`: of the communicator whose proxy has it. Empty: there is
// none that is connected, or it is not of a network.
std::vector<cw_nccl_connection> read_connection(const ProcessView &process, const Plan &plan,
                                                const cw_nccl_layout &layout, std::uint64_t bias,
                                                std::uint64_t proxy_state, std::uint64_t address);

} // namespace collwire::nccl
