// SPDX-License-Identifier: Apache-2.0
// Calls in a group that was still open when the recording ended. NCCL launches calls when their
// group ends, so their launches are in no capture.
#pragma once

#include <vector>

#include "correlate/model/model.h"
#include "correlate/nccl/nccl_facts.h"

namespace collwire::nccl {

class OpenGroups {
public:
    explicit OpenGroups(const model::Model &model);

    // Whether a longer recording might have recorded the call's launch.
    [[nodiscard]] bool may_hold(Index instance, const Call &call) const;

private:
    enum class Connections : std::uint8_t { None, Gone, There };

    const model::Model &model_;
    std::vector<Connections> connections_; // by instance, when the recording ended
};

} // namespace collwire::nccl
