// SPDX-License-Identifier: Apache-2.0
// Rings and trees of a communicator, out of the memory of its process.
#pragma once

#include <cstddef>
#include <vector>

#include "collwire/nccl_comm_records.h"
#include "userspace/nccl/layout/library_layout.h"
#include "userspace/process/process_view.h"

namespace collwire::nccl {

// One finished cw_nccl_channel record for each channel; fewer where the memory could not be read.
// Whatever the process has there, it is bounded in time and memory: all records together are of
// `bytes_left` at most. Where the order of the ranks in a ring is more than is left there is none,
// and in the end no record; `is_cut`, where it is given, becomes true then.
std::vector<std::vector<std::byte>> read_channels(const ProcessView &process, const Plan &plan,
                                                  const cw_nccl_comm &comm, std::size_t bytes_left,
                                                  bool *is_cut = nullptr);

} // namespace collwire::nccl
