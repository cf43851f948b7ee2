// SPDX-License-Identifier: Apache-2.0
// Which operation a connection, or a rank, was at.
#pragma once

#include <cstdint>
#include <span>

#include "correlate/model/model.h"

namespace collwire::nccl {

struct UnderWay {
    // Asked for: one of them, and a time by the clock of their host.
    Index link = NONE;
    Index instance = NONE;
    std::uint64_t time_ns = 0;

    // Found
    Index of_instance = NONE; // NONE: none was under way, or nothing is known of it
    bool is_pair = false;
    Index operation = NONE;
    bool is_certain = false;   // its place is; else it was the last one launched
    std::uint64_t seen_ns = 0; // a look at which it was not done; 0: none
};

// Needs operations.
void find_under_way(const model::Model &model, std::span<UnderWay> asked);

} // namespace collwire::nccl
