// SPDX-License-Identifier: Apache-2.0
// The collectives of an instance in order, with NCCL's own count.
#pragma once

#include <cstdint>
#include <vector>

#include "correlate/nccl/nccl_facts.h"

namespace collwire::nccl {

struct CallItem {
    std::uint64_t signature = 0; // equal for one collective on all ranks
    std::uint64_t time_ns = 0;   // monotonic
    bool is_counted = false;     // by NCCL
};

// A moment at which every call had been started and the last of them is recorded.
struct CountedAt {
    std::uint32_t items = 0;   // recorded calls until then
    std::uint64_t counted = 0; // by NCCL
};

struct CallSequence {
    std::vector<CallItem> items;
    std::vector<CountedAt> counted_at;
    std::uint32_t n_whole = 0; // before the first that may be missing

    [[nodiscard]] bool is_whole() const { return n_whole == items.size(); }
    // NCCL's count for the collective that is the last one of such a moment.
    [[nodiscard]] static std::uint64_t position(const CountedAt &at) { return at.counted - 1; }
    // Whether NCCL counted exactly the recorded calls between two moments.
    [[nodiscard]] bool is_consistent(const CountedAt &from, const CountedAt &to) const;
};

// `has_counts`: NCCL's counts are of this communicator only.
[[nodiscard]] CallSequence call_sequence(const NcclFacts &nccl, const Instance &instance,
                                         bool has_counts);

} // namespace collwire::nccl
