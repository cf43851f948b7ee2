// SPDX-License-Identifier: Apache-2.0
#include "userspace/nccl/memory/proxies.h"

#include <algorithm>
#include <cstddef>
#include <vector>

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

constexpr std::int32_t MAX_RANKS = 65536;
constexpr std::size_t LIST_BYTES = 32; // struct ncclProxyOps in 2.18 to 2.32

// Remembers the first address that it cannot read.
class MemoryFetcher {
public:
    explicit MemoryFetcher(const process::ProcessView &process) : process_(process) {}

    // 0: unreadable, or the structure or its field does not exist.
    template <typename T> T field(std::uint64_t base, std::uint32_t offset) {
        if (base == 0 || offset == CW_NCCL_NO_FIELD)
            return 0;
        const auto value = process_.read<T>(base + offset);
        if (!value)
            note(base + offset);
        return value.value_or(0);
    }
    void ints(std::uint64_t array, std::int32_t n) { bytes(array, n, sizeof(std::int32_t)); }
    void bytes(std::uint64_t array, std::int32_t n, std::size_t bytes_each) {
        if (array == 0 || n <= 0 || n > MAX_RANKS)
            return;
        std::vector<std::byte> copy(static_cast<std::size_t>(n) * bytes_each);
        if (!process_.read(array, copy))
            note(array);
    }
    [[nodiscard]] std::optional<std::uint64_t> unread() const { return unread_; }

private:
    void note(std::uint64_t address) {
        if (!unread_)
            unread_ = address;
    }

    const process::ProcessView &process_;
    std::optional<std::uint64_t> unread_;
};

} // namespace

std::optional<std::uint64_t> fetch_proxies(const process::ProcessView &process,
                                           const cw_nccl_layout &of, std::uint64_t comm) {
    MemoryFetcher fetch{process};
    const auto state = fetch.field<std::uint64_t>(comm, of.comm_proxy_state);
    const auto lists = fetch.field<std::uint64_t>(state, of.proxy_state_ops);
    auto n_lists = fetch.field<std::int32_t>(state, of.proxy_state_lists);
    const auto n_ranks = fetch.field<std::int32_t>(comm, of.comm_n_ranks);
    fetch.field<std::int32_t>(comm, of.comm_local_rank);
    const auto shared = fetch.field<std::uint64_t>(comm, of.comm_shared_res);
    const auto owner = fetch.field<std::uint64_t>(shared, of.shared_owner);
    fetch.ints(fetch.field<std::uint64_t>(comm, of.comm_top_parent_ranks), n_ranks);
    for (const std::uint64_t each : {comm, owner}) {
        const auto local_ranks = fetch.field<std::int32_t>(each, of.comm_local_ranks);
        fetch.field<std::uint64_t>(each, of.comm_start_magic);
        fetch.ints(fetch.field<std::uint64_t>(each, of.comm_local_rank_to_rank), local_ranks);
        fetch.ints(fetch.field<std::uint64_t>(each, of.comm_top_parent_local_ranks), local_ranks);
        if (of.proxy_state_lists == CW_NCCL_NO_FIELD)
            n_lists = std::max(n_lists, local_ranks);
        if (owner == comm)
            break;
    }
    fetch.bytes(lists, n_lists, LIST_BYTES);
    return fetch.unread();
}

std::optional<std::int32_t> count_lists(const process::ProcessView &process,
                                        const cw_nccl_layout &bpf_layout,
                                        std::uint64_t proxy_state) {
    if (bpf_layout.proxy_state_lists == CW_NCCL_NO_FIELD || proxy_state == 0)
        return std::nullopt;
    return process.read<std::int32_t>(proxy_state + bpf_layout.proxy_state_lists);
}

std::optional<ProxyOf> proxy_of(std::span<const cw_nccl_comm> comms, const cw_nccl_comm &comm,
                                std::uint32_t index, std::optional<std::int32_t> n_lists) {
    const cw_nccl_comm *owner = owner_of(comms, comm);
    if (owner == nullptr)
        return std::nullopt;
    const bool by_rank = n_lists && *n_lists != owner->local_ranks;
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
