// SPDX-License-Identifier: Apache-2.0
// The pool of operations that the ranks of a node share with one proxy. A rank that finds it empty
// spins in NCCL's host code until the proxy returns operations.
#pragma once

#include <cstdint>
#include <optional>

#include "collwire/nccl_comm_records.h"
#include "userspace/nccl/layout/library_layout.h"
#include "userspace/process/process_view.h"

namespace collwire::inspect {

// Whether this communicator's rank has no free operation for a proxy that it uses: neither in its
// own list (ncclProxyOps.freeOp) nor returned by the proxy (ncclProxyOpsPool.freeOps), -1 both, as
// ncclLocalOpAppend in proxy.cc reads them (2.18 to 2.30). Nothing: this layout lacks the fields.
[[nodiscard]] std::optional<bool> is_pool_empty(const process::ProcessView &process,
                                                const nccl::LibraryLayout &layout,
                                                const cw_nccl_comm &comm);

} // namespace collwire::inspect
