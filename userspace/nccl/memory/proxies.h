// SPDX-License-Identifier: Apache-2.0
// Finds the rank whose proxy an operation was given to: NCCL sends through another rank of the node
// if that rank is nearer to the network (PXN).
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "collwire/nccl_comm_records.h"

namespace collwire::nccl {

struct ProxyOf {
    cw_nccl_comm comm{};    // of the rank with the proxy, in its own process
    std::int32_t rank = -1; // the number that the proxy has for the rank that gives it operations
};

// `comms`: all known communicators of this machine. `index`: NCCL's own, by rank from 2.30 on and
// by local rank before, in the communicator that `comm` was split from if both share their proxies.
// Empty: the rank is unknown here, or two ranks fit.
std::optional<ProxyOf> proxy_of(std::span<const cw_nccl_comm> comms, const cw_nccl_comm &comm,
                                std::uint32_t index, bool by_rank);

} // namespace collwire::nccl
