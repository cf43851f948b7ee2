// SPDX-License-Identifier: Apache-2.0
// What a communicator moves, as far as it tells for what it is used.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "correlate/roles/facts.h"

namespace collwire::roles {

// Large collectives.
struct LargeCollectives {
    std::uint64_t n = 0;
    std::uint64_t reducing = 0; // AllReduce, ReduceScatter, Reduce
    bool has_all_reduce = false, has_reduce_scatter = false, has_all_gather = false;
    std::set<std::uint64_t> sizes; // whole buffers, bytes
    bool is_uniform = false;       // nine of ten have one size
    // The same operations in the same order, again and again: how many sizes they have, and how
    // often that was recorded; 0: they do not repeat.
    std::size_t repeated_sizes = 0;
    std::size_t repetitions = 0;
};
[[nodiscard]] LargeCollectives large_collectives(const GroupFacts &group);

enum class TransferShape : std::uint8_t {
    None,       // no sends
    Chain,      // each rank with its neighbours, and less or nothing between the last and the first
    Ring,       // each rank with the next one, alike all around
    AllToAll,   // each rank with each other one, about equally often
    Pair,       // two ranks, perhaps both at once
    TurnsOfTwo, // two ranks that take turns
    Unknown,
};
[[nodiscard]] TransferShape transfer_shape(const GroupFacts &group);
// Sizes of sends that differ, as those of tokens to experts do.
[[nodiscard]] bool has_uneven_transfers(const GroupFacts &group);

// "AllGather, ReduceScatter: 24 of 1 size"
[[nodiscard]] std::string traffic_text(const GroupFacts &group);

} // namespace collwire::roles
