// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "correlate/diagnose/ends.h"

namespace collwire::diagnose {

// Ranks whose operation differs from that at the other end of their connection: another function,
// datatype, reduction or size at the same step. `ends` are those of `comm`.
[[nodiscard]] std::vector<Cause> find_mismatches(const Communicator &comm, const Ends &ends);

} // namespace collwire::diagnose
