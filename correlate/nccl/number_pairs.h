// SPDX-License-Identifier: Apache-2.0
// Numbers sends and their receives, even if a recorder attached late or several times.
#pragma once

#include <optional>
#include <vector>

#include "correlate/nccl/align_sequences.h"
#include "correlate/nccl/nccl_facts.h"

namespace collwire::nccl {

// One rank's sends to another in one recording, or the receives there.
struct EndCalls {
    std::uint64_t n = 0;
    std::vector<SequenceItem> items; // of all, or empty if not requested
    bool is_send = false;
    SeqBase base = SeqBase::Recording;   // Creation: recorded from the start
    std::optional<std::uint64_t> number; // of the first; absent: not known
};

// Whether numbers need the items.
[[nodiscard]] bool needs_items(const std::vector<EndCalls> &all);
// Numbers those with a known place and sets the base.
void number_pairs(std::vector<EndCalls> &all);

} // namespace collwire::nccl
