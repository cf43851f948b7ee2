// SPDX-License-Identifier: Apache-2.0
// Which ranks call collectives late, so that the others wait for them.
#pragma once

#include <vector>

#include "correlate/model/model.h"

namespace collwire::nccl {

// Fills NcclFacts::lateness. `model`: with the clocks of hosts solved.
void find_lateness(model::Model &model);

// Instances of ranks that are late in a tenth of their calls, and three times or more: those that
// were late for the longest time first.
[[nodiscard]] std::vector<model::Index> late_ranks(const NcclFacts &nccl);

} // namespace collwire::nccl
