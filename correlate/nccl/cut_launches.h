// SPDX-License-Identifier: Apache-2.0
// Launches of which not all operations were seen (CW_NCCL_LAUNCH_TRUNCATED): what they launched may
// have left no task in any record.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "correlate/model/model.h"
#include "correlate/nccl/nccl_facts.h"

namespace collwire::nccl {

class CutLaunches {
public:
    explicit CutLaunches(const model::Model &model);

    // Whether a call of which no launch is known may be of one of these: it is of the group that
    // one ends, from the launch before the group on.
    [[nodiscard]] bool may_hold(Index instance, const Call &call) const;

private:
    // By instance: times (after, up to] of calls, in order.
    std::vector<std::vector<std::pair<std::uint64_t, std::uint64_t>>> groups_;
};

} // namespace collwire::nccl
