// SPDX-License-Identifier: Apache-2.0
// NCCL launches calls when their group ends. When a recording ends, that of its last calls may be
// open: their launches are in no capture.
#pragma once

#include <vector>

#include "correlate/model/model.h"
#include "correlate/nccl/nccl_facts.h"

namespace collwire::nccl {

class OpenGroups {
public:
    explicit OpenGroups(const model::Model &model);

    // Whether a call that was not launched may have been, if the recording had gone on.
    [[nodiscard]] bool may_hold(Index instance, const Call &call) const;

private:
    enum class Connections : std::uint8_t { None, Gone, There };

    const model::Model &model_;
    std::vector<Connections> connections_; // by instance, when the recording ended
};

} // namespace collwire::nccl
