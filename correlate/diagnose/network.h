// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "correlate/diagnose/ends.h"

namespace collwire::diagnose {

// What was sent and is not acknowledged; and, over NET/IB, room that a receiver has told its sender
// of, which the sender has not heard of. Where several ranks are cut off from one rank, or from the
// ranks of one host, that is the cause. `ends` are those of `comm`.
[[nodiscard]] std::vector<Cause> find_network_causes(const Communicator &comm, const Ends &ends);

} // namespace collwire::diagnose
