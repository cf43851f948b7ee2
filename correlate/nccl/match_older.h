// SPDX-License-Identifier: Apache-2.0
// Before 2.24 a launch does not say which calls it is of, nor its operations of which of them each
// is. NCCL launches calls in their order, and counts the collectives that it launched; what it
// makes of a call is known (older_plan.h).
#pragma once

#include <cstdint>
#include <map>

#include "correlate/model/model.h"

namespace collwire::nccl {

// Whether launches of a communicator say nothing of tasks.
[[nodiscard]] bool is_older(const NcclFacts &nccl, const Instance &instance);

// What the recorded ranks of a communicator show of its channels: found for the first of them.
struct ChannelsSeen {
    std::uint32_t channels = 0;
    bool of_all_ranks = false;
};

// Of all instances of a report.
struct OlderReport {
    std::map<Index, ChannelsSeen> channels; // by communicator
    // Calls and operations that are still looked at. Then launches are of the calls that wait
    // longest, as where nothing tells.
    std::uint64_t looks_left = 400'000'000;
};

// Finds the calls of its launches. Each launch then has a task for each of its calls; where several
// launches look alike and their calls are different, each gets a shape of its own.
// `best`: nothing is better known than this.
void match_older(NcclFacts &nccl, const Instance &instance, Rung best, OlderReport &report);

} // namespace collwire::nccl
