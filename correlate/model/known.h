// SPDX-License-Identifier: Apache-2.0
// What every part of the model is made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "correlate/topology/topology.h"

namespace collwire::model {

// Points into a vector of Model; NONE points nowhere.
using Index = std::uint32_t;
inline constexpr Index NONE = ~Index{0};

// A number, or: not measured. Never 0 for the latter.
using Known = std::optional<std::uint64_t>;
// Adds what is known; a sum of nothing known is not known.
void add_known(Known &sum, const Known &value);

inline constexpr std::size_t TIERS = 5;
[[nodiscard]] constexpr std::size_t index_of(topology::Tier tier) {
    return static_cast<std::size_t>(tier);
}

} // namespace collwire::model
