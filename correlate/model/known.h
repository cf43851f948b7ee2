// SPDX-License-Identifier: Apache-2.0
// Basic types of all parts of the model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "correlate/topology/topology.h"

namespace collwire::model {

// Points into a vector of Model; NONE points nowhere.
using Index = std::uint32_t;
inline constexpr Index NONE = ~Index{0};

// A number, or absent if not measured (never 0 then).
using Known = std::optional<std::uint64_t>;
// Adds known values; a sum without any known value is unknown.
void add_known(Known &sum, const Known &value);

inline constexpr std::size_t TIERS = 5;
[[nodiscard]] constexpr std::size_t index_of(topology::Tier tier) {
    return static_cast<std::size_t>(tier);
}

} // namespace collwire::model
