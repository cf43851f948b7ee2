// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/owner_ranks.h"

namespace collwire::nccl {

namespace {

AddressKey proxies_of(const Instance &instance) {
    return {instance.record.proxy_state, instance.session, instance.record.tgid};
}

} // namespace

OwnerRanks::OwnerRanks(std::span<const Instance> instances) {
    for (const Instance &instance : instances)
        if (!instance.is_shared() && instance.record.proxy_state != 0)
            by_proxies_[proxies_of(instance)] = instance.record.rank;
    for (const Instance &instance : instances) {
        const auto owner_rank = own(instance);
        if (!instance.is_shared() || !owner_rank)
            continue;
        const auto [known, is_new] =
            by_owner_rank_[{instance.record.comm_hash, instance.record.n_ranks}].try_emplace(
                *owner_rank, instance.record.rank);
        if (!is_new && known->second != instance.record.rank)
            known->second = -1;
    }
}

std::optional<std::int32_t> OwnerRanks::own(const Instance &instance) const {
    if (!instance.is_shared())
        return instance.record.rank;
    const auto found = by_proxies_.find(proxies_of(instance));
    return found == by_proxies_.end() ? std::nullopt : std::optional{found->second};
}

std::int32_t OwnerRanks::rank_of(const Instance &instance, std::int32_t owner_rank) const {
    const auto comm = by_owner_rank_.find({instance.record.comm_hash, instance.record.n_ranks});
    if (comm == by_owner_rank_.end())
        return -1;
    const auto found = comm->second.find(owner_rank);
    return found == comm->second.end() ? -1 : found->second;
}

} // namespace collwire::nccl
