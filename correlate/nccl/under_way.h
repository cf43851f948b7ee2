// SPDX-License-Identifier: Apache-2.0
// Finds the operation that a connection, or a rank, was in.
#pragma once

#include <cstdint>
#include <span>

#include "correlate/model/model.h"

namespace collwire::nccl {

struct UnderWay {
    // Input: one of them, and a time by their host's clock.
    Index link = NONE;
    Index instance = NONE;
    std::uint64_t time_ns = 0;

    // Found
    Index of_instance = NONE; // NONE: no operation was in flight, or unknown
    bool is_pair = false;
    Index operation = NONE;
    bool is_certain = false;   // its place is known; else it is the last launch
    std::uint64_t seen_ns = 0; // a sample at which it was incomplete; 0: no sample
};

// Needs operations.
void find_under_way(const model::Model &model, std::span<UnderWay> asked);

} // namespace collwire::nccl
