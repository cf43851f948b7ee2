// SPDX-License-Identifier: Apache-2.0
// What a test looks for in a model of NCCL's work.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>

#include "correlate/model/model.h"

namespace collwire::test {

inline const identity::Operation &collective(const model::Model &model, std::uint64_t seq,
                                             std::uint32_t replay = identity::NONE) {
    for (const identity::Operation &operation : model.nccl.collectives)
        if (operation.seq == seq && operation.replay == replay)
            return operation;
    ADD_FAILURE() << "no collective " << seq;
    static const identity::Operation none;
    return none;
}

inline std::uint64_t of_rung(const model::Model &model, identity::Rung rung) {
    return model.nccl.totals.by_rung[static_cast<std::size_t>(rung)];
}

} // namespace collwire::test
