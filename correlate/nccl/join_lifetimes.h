// SPDX-License-Identifier: Apache-2.0
// Which instances of one hash and number of ranks are of one communicator: by when they lived.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "correlate/nccl/gathered.h"

namespace collwire::nccl {

// Instances that belong together, and what others are compared with. Times are of one clock.
struct LivingGroup {
    std::vector<Index> instances;
    std::set<std::int32_t> ranks;
    std::uint64_t begin_ns = UINT64_MAX;
    std::uint64_t latest_begin_ns = 0;
    std::uint64_t first_end_ns = UINT64_MAX;
    std::uint64_t created_ns = 0; // 0: not seen
    // All communicators of their processes that were created between these are here.
    std::uint64_t watched_from_ns = 0;
    std::uint64_t watched_until_ns = UINT64_MAX;

    void take(const LivingGroup &other);
};

// Unites two only where each is the only one, or clearly the nearest, that the other can mean.
[[nodiscard]] std::vector<LivingGroup> join_lifetimes(std::vector<LivingGroup> groups);

} // namespace collwire::nccl
