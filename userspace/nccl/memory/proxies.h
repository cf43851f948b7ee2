// SPDX-License-Identifier: Apache-2.0
// Finds the rank whose proxy an operation was given to: NCCL sends through another rank of the node
// if that rank is nearer to the network (PXN).
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_layout.h"
#include "userspace/process/process_view.h"

namespace collwire::nccl {

// Reads what the programs read of a communicator to find its proxies (find_proxies in
// bpf/nccl_comms.h), and NCCL's lists of operations for them. The kernel fetches memory that is not
// present for such a read, and for a program it does not. Returns the first address that cannot be
// read; empty: all could.
std::optional<std::uint64_t> fetch_proxies(const process::ProcessView &process,
                                           const cw_nccl_layout &bpf_layout, std::uint64_t comm);

// peerArraySize of these proxies, the number of NCCL's lists. Empty: unreadable, or this build has
// no such field.
std::optional<std::int32_t> count_lists(const process::ProcessView &process,
                                        const cw_nccl_layout &bpf_layout,
                                        std::uint64_t proxy_state);

struct ProxyOf {
    cw_nccl_comm comm{};    // of the rank with the proxy, in its own process
    std::int32_t rank = -1; // the number that the proxy has for the rank that gives it operations
};

// `comms`: all known communicators of this machine. `index`: NCCL's own, in the communicator that
// `comm` was split from if both share their proxies. It is by local rank if there are as many lists
// as local ranks, or `n_lists` is empty; else by rank. Empty: the rank is unknown here, or two
// ranks fit.
std::optional<ProxyOf> proxy_of(std::span<const cw_nccl_comm> comms, const cw_nccl_comm &comm,
                                std::uint32_t index, std::optional<std::int32_t> n_lists);

} // namespace collwire::nccl
