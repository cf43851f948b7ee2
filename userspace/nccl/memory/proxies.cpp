// SPDX-License-Identifier: Apache-2.0
#include "userspace/nccl/memory/proxies.h"

#include <algorithm>

namespace collwire::nccl {
namespace {

bool is_shared(const cw_nccl_comm &comm) {
    return (comm.flags & CW_NCCL_COMM_SHARED) != 0;
}

// The communicator whose proxies it uses; null: unknown.
const cw_nccl_comm *owner_of(std::span<const cw_nccl_comm> comms, const cw_nccl_comm &comm) {
    if (!is_shared(comm))
        return &comm;
    const auto owner = std::ranges::find_if(comms, [&comm](const cw_nccl_comm &other) {
        return other.tgid == comm.tgid && other.proxy_state == comm.proxy_state &&
               !is_shared(other);
    });
    return owner == comms.end() ? nullptr : &*owner;
}

bool are_of_one(const cw_nccl_comm &a, const cw_nccl_comm &b) {
    return a.comm_hash == b.comm_hash && a.n_ranks == b.n_ranks && a.node == b.node &&
           !is_shared(b) && (a.tgid != b.tgid || a.comm != b.comm);
}

} // namespace

std::optional<ProxyOf> proxy_of(std::span<const cw_nccl_comm> comms, const cw_nccl_comm &comm,
                                std::uint32_t index, bool by_rank) {
    const cw_nccl_comm *owner = owner_of(comms, comm);
    if (owner == nullptr)
        return std::nullopt;
    std::optional<ProxyOf> found;
    for (const cw_nccl_comm &other : comms) {
        const std::int32_t at = by_rank ? other.rank : other.local_rank;
        if (!are_of_one(*owner, other) || at < 0 || static_cast<std::uint32_t>(at) != index)
            continue;
        if (found)
            return std::nullopt; // communicators may have the same hash
        found = ProxyOf{other, owner->rank};
    }
    return found;
}

} // namespace collwire::nccl
