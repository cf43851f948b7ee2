// SPDX-License-Identifier: Apache-2.0
// Launches with operations that were not recorded (CW_NCCL_LAUNCH_TRUNCATED): some of their tasks
// may be in no record.
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

    // Whether a call without a known launch may belong to one of these: it was made after the last
    // launch before such a group, and not after the group.
    [[nodiscard]] bool may_hold(Index instance, const Call &call) const;

private:
    // By instance: time ranges (after, up to] of calls, in order.
    std::vector<std::vector<std::pair<std::uint64_t, std::uint64_t>>> groups_;
};

} // namespace collwire::nccl
