// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "correlate/diagnose/ends.h"

namespace collwire::diagnose {

// Sent data without an acknowledgement and, over NET/IB, a receiver's clear-to-send that never
// reached its sender. If several ranks are cut off from one rank or from one host, that rank or
// host is the cause. `ends` are those of `comm`.
[[nodiscard]] std::vector<Cause> find_network_causes(const Communicator &comm, const Ends &ends);

} // namespace collwire::diagnose
