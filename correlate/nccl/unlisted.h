// SPDX-License-Identifier: Apache-2.0
// Launched bytes without an operation, summed by communicator, function and whether they were
// captured into a CUDA graph.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "correlate/nccl/link_meter.h"
#include "correlate/nccl/nccl_facts.h"

namespace collwire::nccl {

class UnlistedSums {
public:
    // One operation of a launch; those of a launch come one after the other. `func`: of the call.
    void add(Index instance, const Launch &launch, std::uint8_t func, const OpShare &share);
    void append_to(std::vector<UnlistedLaunches> &list) const;

private:
    // By instance, function and whether it was captured; with the last launch.
    std::map<std::tuple<Index, std::uint8_t, bool>, std::pair<UnlistedLaunches, std::uint32_t>>
        sums_;
};

} // namespace collwire::nccl
