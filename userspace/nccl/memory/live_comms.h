// SPDX-License-Identifier: Apache-2.0
// Reads the communicators of a running process and their connections in its memory. From 2.24 on:
// before, no variable leads to them.
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

// The difference between addresses in the process and in the file. `mapping` is one of the file.
// Empty: it does not map the code under the layout's probes.
std::optional<std::uint64_t> load_bias(const LibraryLayout &layout,
                                       const process::Mapping &mapping);

struct LiveComm {
    cw_nccl_comm comm{}; // without time, process and library
    // Connected ones of a network, without time and process.
    std::vector<cw_nccl_connection> connections;
};

struct LiveComms {
    std::vector<LiveComm> comms;
    bool is_cut = false; // the process has more than is read
};

// The communicators that are ready for use. Time and memory are bounded. Unreadable ones are left
// out.
LiveComms read_comms(const process::ProcessView &process, const LibraryLayout &layout,
                     const cw_nccl_layout &bpf_layout, std::uint64_t bias);

// The same for communicators at known addresses.
LiveComms read_comms_at(const process::ProcessView &process, const LibraryLayout &layout,
                        const cw_nccl_layout &bpf_layout, std::uint64_t bias,
                        std::span<const std::uint64_t> addresses);

// Whether the same communicator is still at this address.
bool is_there(const process::ProcessView &process, const LibraryLayout &layout,
              const cw_nccl_layout &bpf_layout, std::uint64_t bias, const cw_nccl_comm &comm);

// Stores the communicator's current counts of started operations in `comm`.
void read_counts(const process::ProcessView &process, const LibraryLayout &layout,
                 const cw_nccl_layout &bpf_layout, cw_nccl_comm &comm);

// One connection at a known address, in as many records as its endpoints need, without time,
// process and communicator. `proxy_state`: of the communicator whose proxy has it. Empty: not
// connected, or not of a network.
std::vector<cw_nccl_connection> read_connection(const process::ProcessView &process,
                                                const LibraryLayout &layout,
                                                const cw_nccl_layout &bpf_layout,
                                                std::uint64_t bias, std::uint64_t proxy_state,
                                                std::uint64_t address);

} // namespace collwire::nccl
