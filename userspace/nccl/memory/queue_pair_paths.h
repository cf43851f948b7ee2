// SPDX-License-Identifier: Apache-2.0
// Reads with whom the queue pairs of NCCL's own InfiniBand transport are connected, from the memory
// of their process.
#pragma once

#include <vector>

#include "collwire/nccl_connection_records.h"
#include "userspace/nccl/layout/library_layout.h"
#include "userspace/process/process_view.h"
#include "userspace/source/queue_pair_path.h"

namespace collwire::nccl {

// Of the endpoints in this record that have another end; flush queue pairs do not. Fewer if memory
// could not be read, or if several devices of the other end are possible. NCCL 2.20 or later.
// Source of the layout: struct ncclIbNetCommBase and struct ncclIbDevInfo.
std::vector<source::QueuePairPath> read_queue_pair_paths(const process::ProcessView &process,
                                                         const LibraryLayout &layout,
                                                         const cw_nccl_connection &connection);

} // namespace collwire::nccl
