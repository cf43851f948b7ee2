// SPDX-License-Identifier: Apache-2.0
// Which rank called an operation last: the one that the others waited for.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "correlate/model/model.h"

namespace collwire::nccl {

class CommonClock;

struct LastCall {
    std::int32_t rank = -1;
    std::uint64_t after_first_ns = 0; // after the first rank's call, on one clock for all hosts
};

// From the first rank's call to the last one's, by the bounds of clocks.
struct CallSpread {
    std::uint64_t least_ns = 0;
    std::uint64_t most_ns = 0;
};

class LastCalls {
public:
    // Two passes over all calls.
    explicit LastCalls(const model::Model &model);

    // Absent: a rank is in no capture, it is the only one, a host's clock was never read, the
    // clocks do not show which one was last, or the operation is launched by a CUDA graph, whose
    // launches are no calls.
    [[nodiscard]] std::optional<LastCall> of(const Operation &operation, std::size_t place,
                                             bool is_pair) const;
    // Absent as above, but for the clocks: only where nothing bounds them.
    [[nodiscard]] std::optional<CallSpread> spread(const Operation &operation, std::size_t place,
                                                   bool is_pair) const;

private:
    struct Calls {
        std::uint64_t first_ns = UINT64_MAX;
        std::uint64_t last_ns = 0;
        std::uint64_t last_monotonic_ns = 0; // on its host's clock
        // Of the calls on one host: the common clock need not run as even as that of the host.
        std::uint64_t least_monotonic_ns = UINT64_MAX, most_monotonic_ns = 0;
        model::Index last_host = model::NONE;
        std::int32_t last_rank = -1;
        std::uint32_t n = 0;
        std::uint32_t n_earlier = 0;        // certainly before the last one
        std::uint64_t last_earliest_ns = 0; // of the last one; 0: no bound is known
        model::Index first_host = model::NONE;
        bool has_several_hosts = false, lacks_bounds = false;
        std::uint64_t earliest_ns = UINT64_MAX, latest_ns = 0;
        // The least of the latest moments of the calls, and the greatest of the earliest ones.
        std::uint64_t first_by_ns = UINT64_MAX, last_from_ns = 0;
    };

    // Of calls on several hosts by the common clock.
    [[nodiscard]] static std::uint64_t after_first_ns(const Calls &calls);
    // Whether a call was certainly before the last one.
    [[nodiscard]] bool is_earlier(const CommonClock &clock, const Calls &calls, model::Index host,
                                  std::uint64_t monotonic_ns) const;
    // Its calls, if all ranks called it.
    [[nodiscard]] const Calls *whole(const Operation &operation, std::size_t place,
                                     bool is_pair) const;

    template <typename Visit> void for_each_call(Visit visit);

    const model::Model &model_;
    const NcclFacts &nccl_;
    std::vector<Calls> calls_[2]; // of collectives, of pairs
};

} // namespace collwire::nccl
