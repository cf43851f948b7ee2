// SPDX-License-Identifier: Apache-2.0
// A kernel knows its communicator by an address on the device. The host's ncclComm_t is found by
// what NCCL allocates for each of them: it lets CUDA write the handle into a member of ncclComm.
#pragma once

#include <cstdint>
#include <optional>

#include "tests/cuda_double/device_state.h"

namespace collwire::cuda_double {

struct HostCommunicator {
    std::uintptr_t address = 0; // the ncclComm_t
    std::uint64_t hash = 0;     // commHash
};

// CUDA wrote the handle of a pool or of pinned memory to `member`.
void handle_written(const void *member, const void *handle);
void handle_released(const void *handle);

// Nothing where this NCCL lacks one of the members, or keeps its handles elsewhere.
std::optional<HostCommunicator> host_communicator_of(const Communicator &device);

} // namespace collwire::cuda_double
