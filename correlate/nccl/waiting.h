// SPDX-License-Identifier: Apache-2.0
// Of equal collectives of a communicator: how long ranks waited for the last one to call, and how
// long the operation took from then on.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "correlate/model/model.h"
#include "correlate/nccl/last_calls.h"

namespace collwire::nccl {

// Of one collective, from its first call to its end.
enum class Waited : std::uint8_t {
    Unclear,   // the bounds allow both, or its end is not known
    ForRank,   // half of the time or more: the last rank had not called yet
    ForTheRest // more than half of the time: all ranks had called
};

// Times of some operations, as bounds of the same percentile.
struct BoundedPercentiles {
    std::uint64_t n = 0;
    std::uint64_t least_p50_ns = 0, most_p50_ns = 0;
    std::uint64_t least_p95_ns = 0, most_p95_ns = 0;
};

// Of the collectives that all ranks called, that no CUDA graph has, and whose ranks' clocks can be
// compared (last_calls.h). Calls are what hosts do: a GPU that starts later than its host called
// counts as transfer.
struct WaitingTimes {
    model::Index comm = model::NONE;
    std::uint8_t func = 0;
    std::uint8_t algorithm = 0;
    std::uint8_t protocol = 0;
    model::Known size_bytes;
    std::uint64_t for_rank = 0, for_the_rest = 0, unclear = 0;
    BoundedPercentiles spread;       // from the first call to the last one
    BoundedPercentiles transfer;     // from the last call to the end, of those with a known end
    std::uint64_t sum_waited_ns = 0; // of for_rank, the lower bounds of the spreads
    // How often each rank was certainly the last one of those that waited for a rank.
    std::map<std::int32_t, std::uint64_t> last_ranks;
};

// The longest waiting first. `calls`: of the same model.
[[nodiscard]] std::vector<WaitingTimes> find_waiting(const model::Model &model,
                                                     const LastCalls &calls);
[[nodiscard]] std::vector<WaitingTimes> find_waiting(const model::Model &model);

} // namespace collwire::nccl
