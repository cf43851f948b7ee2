// SPDX-License-Identifier: Apache-2.0
// One clock for all hosts. Where the clocks of hosts were solved (Model::clocks): the reference's
// monotonic clock, with its realtime of one moment as a label, so that a realtime clock that is set
// while the job runs changes no order. Else realtime, corrected by the offsets of connections.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "correlate/model/model.h"

namespace collwire::nccl {

// A moment as far as it is known.
struct CommonTime {
    std::uint64_t time_ns = 0;     // the best estimate; 0: the host's clock was never read
    std::uint64_t earliest_ns = 0; // both 0: no bound is known
    std::uint64_t latest_ns = 0;

    // How far the estimate may be off. Absent: not known.
    [[nodiscard]] std::optional<std::uint64_t> error_ns() const {
        return latest_ns == 0 ? std::nullopt : std::optional((latest_ns - earliest_ns + 1) / 2);
    }
};

class CommonClock {
public:
    explicit CommonClock(const model::Model &model);

    // 0: the host's clock was never read.
    [[nodiscard]] std::uint64_t time_ns(model::Index host, std::uint64_t monotonic_ns) const;
    [[nodiscard]] CommonTime time(model::Index host, std::uint64_t monotonic_ns) const;
    // Which of two moments came first, if that is certain.
    [[nodiscard]] clocks::Order order(model::Index host_a, std::uint64_t a_ns, model::Index host_b,
                                      std::uint64_t b_ns) const;

private:
    void solve_by_differences();

    const model::Model &model_;
    std::vector<std::uint64_t> ahead_ns_; // by host, modulo 2^64
    // By host, of calibrated ones: realtime less monotonic time of the reference, modulo 2^64.
    std::vector<std::optional<std::uint64_t>> label_ns_;
};

} // namespace collwire::nccl
