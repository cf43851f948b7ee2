// SPDX-License-Identifier: Apache-2.0
// Matches launches to calls before NCCL 2.24, where neither launches nor operations name their
// calls. NCCL launches calls in order and counts the launched collectives; the operations of a call
// are computable (older_plan.h).
#pragma once

#include <cstdint>
#include <map>

#include "correlate/model/model.h"

namespace collwire::nccl {

// Whether launches of a communicator lack tasks.
[[nodiscard]] bool is_older(const NcclFacts &nccl, const Instance &instance);

// Channels seen on a communicator's recorded ranks: computed for the first of them.
struct ChannelsSeen {
    std::uint32_t channels = 0;
    bool of_all_ranks = false;
};

// State for all instances of a report.
struct OlderReport {
    std::map<Index, ChannelsSeen> channels; // by communicator
    // Remaining comparisons of calls and operations. After that launches get the longest waiting
    // calls, as without evidence.
    std::uint64_t looks_left = 400'000'000;
};

// Finds the calls of its launches. Each launch then has a task for each of its calls; if several
// launches look alike but have different calls, each gets its own shape. `best`: upper limit of the
// certainty.
void match_older(NcclFacts &nccl, const Instance &instance, Rung best, OlderReport &report);

} // namespace collwire::nccl
