// SPDX-License-Identifier: Apache-2.0
// Reads how a rank is connected with the other ranks of its node, in the memory of its process.
#pragma once

#include <vector>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_connection_records.h"
#include "userspace/nccl/layout/library_layout.h"
#include "userspace/process/process_view.h"

namespace collwire::nccl {

// One record for each other rank of the node, without time; none if the layout lacks a field or the
// ranks cannot be read. A connection whose proxy is in another process has no bit. Time and memory
// are bounded. Source: the transport number of each connector's proxy connection (transport.h: 0
// P2P, 1 SHM, 2 NET), which every transport registers (p2p.cc, shm.cc, net.cc: ncclProxyConnect).
std::vector<cw_nccl_local> read_local_connections(const process::ProcessView &process,
                                                  const LibraryLayout &layout,
                                                  const cw_nccl_comm &comm);

} // namespace collwire::nccl
