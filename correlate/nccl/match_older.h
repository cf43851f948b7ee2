// SPDX-License-Identifier: Apache-2.0
// Before 2.24 a launch does not say which calls it is of, nor its operations of which of them each
// is. NCCL launches calls in their order, and counts the collectives that it launched; what it
// makes of a call is known (older_plan.h).
#pragma once

#include <cstdint>
#include <map>

#include "correlate/model/model.h"

namespace collwire::identity {

// Whether launches of a communicator say nothing of tasks.
[[nodiscard]] bool is_older(const Identity &nccl, const Instance &instance);

// What the recorded ranks of a communicator show of its channels: found for the first of them.
struct ChannelsSeen {
    std::uint32_t channels = 0;
    bool of_all_ranks = false;
};
using ChannelsOfCommunicators = std::map<Index, ChannelsSeen>;

// Finds the calls of its launches. Each launch then has a task for each of its calls; where several
// launches look alike and their calls are different, each gets a shape of its own.
// `best`: nothing is better known than this.
void match_older(Identity &nccl, const Instance &instance, Rung best,
                 ChannelsOfCommunicators &channels);

} // namespace collwire::identity
