// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "correlate/model/model.h"

namespace collwire::report {

// The totals of each tier. Sent bytes are 0 only where it is certain that nothing was sent there;
// else they are absent in place of 0.
[[nodiscard]] std::array<model::Sums, model::TIERS> tier_sums(const model::Model &model);

} // namespace collwire::report
