// SPDX-License-Identifier: Apache-2.0
// Which send is which receive: numbers for the calls of both ends, where a recorder may have come
// late, and several times.
#pragma once

#include <optional>
#include <vector>

#include "correlate/nccl/align_sequences.h"
#include "correlate/nccl/nccl_facts.h"

namespace collwire::nccl {

// The sends of a rank to another in one recording, or the receives there.
struct EndCalls {
    std::uint64_t n = 0;
    std::vector<SequenceItem> items; // of all, or none if that is not asked for
    bool is_send = false;
    SeqBase base = SeqBase::Recording;   // Creation: it was seen from the start
    std::optional<std::uint64_t> number; // of the first; none: it is not known
};

// Whether numbers need the items.
[[nodiscard]] bool needs_items(const std::vector<EndCalls> &all);
// Numbers those whose place is known, and says by what.
void number_pairs(std::vector<EndCalls> &all);

} // namespace collwire::nccl
