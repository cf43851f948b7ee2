// SPDX-License-Identifier: Apache-2.0
// Whose proxy an operation was given to: NCCL lets another rank of the node send where that one is
// nearer to the network (PXN).
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "collwire/nccl_comm_records.h"

namespace collwire::nccl {

struct ProxyOf {
    cw_nccl_comm comm{};    // of the rank whose proxy it is; the process is its own
    std::int32_t rank = -1; // by which that proxy knows the rank that gives it operations
};

// `comms`: all that are known on this machine. `index` is that of NCCL's own list: by rank from
// 2.30 on, before by local rank, both of the communicator that `comm` was split from if they share
// their proxies. Nothing: the rank is not
// known here, or two could be it.
std::optional<ProxyOf> proxy_of(std::span<const cw_nccl_comm> comms, const cw_nccl_comm &comm,
                                std::uint32_t index, bool by_rank);

} // namespace collwire::nccl
