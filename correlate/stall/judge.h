// SPDX-License-Identifier: Apache-2.0
// Which rank a job waited for when it ended, and why as far as captures show it.
#pragma once

#include <vector>

#include "correlate/stall/standing.h"
#include "correlate/verdict/verdict.h"

namespace collwire::stall {

// A rank that is late by less is taken for one that is about to call.
inline constexpr std::uint64_t LEAST_WAIT_NS = 1'000'000'000;

// Causes first. Empty: nothing waited.
[[nodiscard]] std::vector<verdict::Verdict> judge(const Standings &job);

} // namespace collwire::stall
