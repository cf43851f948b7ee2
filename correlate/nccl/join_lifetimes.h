// SPDX-License-Identifier: Apache-2.0
// Groups instances with one hash and number of ranks into communicators, by their lifetimes.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "correlate/nccl/gathered.h"

namespace collwire::nccl {

// Instances of one communicator and the times to compare. Times are of one clock.
struct LivingGroup {
    std::vector<Index> instances;
    std::set<std::int32_t> ranks;
    std::uint64_t begin_ns = UINT64_MAX;
    std::uint64_t latest_begin_ns = 0;
    std::uint64_t first_end_ns = UINT64_MAX;
    std::uint64_t created_ns = 0; // 0: not recorded
    // All communicators of their processes that were created between these are recorded.
    std::uint64_t watched_from_ns = 0;
    std::uint64_t watched_until_ns = UINT64_MAX;

    void take(const LivingGroup &other);
};

// Unites two groups only if each is the other's only match, or clearly the nearest.
[[nodiscard]] std::vector<LivingGroup> join_lifetimes(std::vector<LivingGroup> groups);

} // namespace collwire::nccl
