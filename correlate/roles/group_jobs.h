// SPDX-License-Identifier: Apache-2.0
// Divides communicators into jobs, which are what common ranks connect, and guesses in each.
#pragma once

#include <cstdint>
#include <vector>

#include "correlate/roles/facts.h"

namespace collwire::roles {

// A rank's GPU. Those of a host are in the order of their PCI addresses; processes may call each of
// their GPUs number 0.
struct Device {
    std::uint32_t host = 0;   // the caller's number
    std::uint64_t bus_id = 0; // 0: not known
    std::uint64_t tgid = 0;
    std::int32_t cuda_dev = -1;

    friend auto operator<=>(const Device &, const Device &) = default;
};

// One guess for each group. Members' places are indices of `devices`.
[[nodiscard]] std::vector<RoleGuess> guess_groups(std::vector<GroupFacts> groups,
                                                  const std::vector<Device> &devices);

} // namespace collwire::roles
