// SPDX-License-Identifier: Apache-2.0
// What a test looks for in a model of NCCL's work.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>

#include "correlate/model/model.h"
#include "correlate/nccl/parts.h"

namespace collwire::test {

inline const nccl::Operation &collective(const model::Model &model, std::uint64_t seq,
                                         std::uint32_t replay = nccl::NONE) {
    for (const nccl::Operation &operation : model.nccl.collectives)
        if (operation.seq == seq && operation.replay == replay)
            return operation;
    ADD_FAILURE() << "no collective " << seq;
    static const nccl::Operation none;
    return none;
}

inline std::uint64_t of_rung(const model::Model &model, nccl::Rung rung) {
    return model.nccl.totals.by_rung[static_cast<std::size_t>(rung)];
}

// What the parts of an operation say that was sent, by rung.
inline std::array<std::uint64_t, nccl::RUNGS> parts_by_rung(const nccl::Parts &parts,
                                                            const nccl::Operation &of) {
    std::array<std::uint64_t, nccl::RUNGS> result{};
    for (const nccl::Part &part : parts.of(of))
        if (part.is_send)
            result[static_cast<std::size_t>(part.share.rung)] += part.share.payload_bytes;
    return result;
}

// Parts say of bytes what operations and their sums do.
inline void expect_same_in_parts(const model::Model &model) {
    const nccl::Parts parts(model);
    std::array<std::uint64_t, nccl::RUNGS> sums{};
    for (const auto *operations : {&model.nccl.collectives, &model.nccl.p2p})
        for (const nccl::Operation &operation : *operations) {
            const auto by_rung = parts_by_rung(parts, operation);
            std::uint64_t sum = 0;
            for (std::size_t rung = 0; rung < nccl::RUNGS; ++rung) {
                sum += by_rung[rung];
                sums[rung] += by_rung[rung];
            }
            EXPECT_EQ(sum, operation.payload_bytes) << operation.seq;
        }
    for (const nccl::Rung rung : {nccl::Rung::Inferred, nccl::Rung::Exact})
        EXPECT_EQ(sums[static_cast<std::size_t>(rung)], of_rung(model, rung));
}

} // namespace collwire::test
