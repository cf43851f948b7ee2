// SPDX-License-Identifier: Apache-2.0
// Ranks of communicators that share another one's connections (splitShare): those connections have
// the numbering of the communicator that owns them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "correlate/nccl/gathered.h"
#include "correlate/nccl/nccl_facts.h"

namespace collwire::nccl {

class OwnerRanks {
public:
    explicit OwnerRanks(std::span<const Instance> instances);

    // This process's rank in the communicator that owns the connections. Nothing: not recorded.
    [[nodiscard]] std::optional<std::int32_t> own(const Instance &instance) const;
    // The rank, in the communicator of `instance`, of the process that is `owner_rank` in the
    // owner. -1: that process's capture is missing, or two processes claim it.
    [[nodiscard]] std::int32_t rank_of(const Instance &instance, std::int32_t owner_rank) const;

private:
    using CommKey = std::pair<std::uint64_t, std::int32_t>; // hash, number of ranks

    ByAddress<std::int32_t> by_proxies_; // of a process
    std::map<CommKey, std::map<std::int32_t, std::int32_t>> by_owner_rank_;
};

} // namespace collwire::nccl
