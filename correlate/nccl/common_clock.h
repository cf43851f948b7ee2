// SPDX-License-Identifier: Apache-2.0
// One clock for all hosts: realtime, corrected by the offsets measured on connections.
#pragma once

#include <cstdint>
#include <vector>

#include "correlate/model/model.h"

namespace collwire::nccl {

class CommonClock {
public:
    explicit CommonClock(const model::Model &model);

    // 0: the host's clock was never read.
    [[nodiscard]] std::uint64_t time_ns(model::Index host, std::uint64_t monotonic_ns) const;

private:
    const model::Model &model_;
    std::vector<std::uint64_t> ahead_ns_; // by host, modulo 2^64
};

} // namespace collwire::nccl
