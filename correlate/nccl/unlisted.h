// SPDX-License-Identifier: Apache-2.0
// What was launched and is in no operation, summed by communicator, function and whether it was
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
    // By instance, function and whether it was captured; and the last launch.
    std::map<std::tuple<Index, std::uint8_t, bool>, std::pair<UnlistedLaunches, std::uint32_t>>
        sums_;
};

} // namespace collwire::nccl
