// SPDX-License-Identifier: Apache-2.0
// Reads the rings and trees of a communicator in the memory of its process.
#pragma once

#include <cstddef>
#include <vector>

#include "collwire/nccl_comm_records.h"
#include "userspace/nccl/layout/library_layout.h"
#include "userspace/process/process_view.h"

namespace collwire::nccl {

// One complete cw_nccl_channel record for each channel; fewer if memory could not be read. Time and
// memory are bounded: all records together have `bytes_left` bytes at most. Near that bound records
// have no order of ranks, and beyond it there is no record; `is_cut` (may be null) becomes true
// then.
std::vector<std::vector<std::byte>> read_channels(const process::ProcessView &process,
                                                  const LibraryLayout &layout,
                                                  const cw_nccl_comm &comm, std::size_t bytes_left,
                                                  bool *is_cut = nullptr);

} // namespace collwire::nccl
