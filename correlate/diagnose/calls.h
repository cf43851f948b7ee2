// SPDX-License-Identifier: Apache-2.0
// Ranks that wait in NCCL's host code: for memory that a node shares, for first connections, for
// the end of a communicator.
#pragma once

#include <cstdint>
#include <set>

#include "correlate/diagnose/diagnosis.h"

namespace collwire::diagnose {

// Ranks in a call of NCCL that does not return, in communicators that no operation holds up. In a
// collective they wait for the ranks that have not called it.
void find_waiting_calls(Communicator &comm);

// Ranks that lag and are in a call of NCCL, where they wait for ranks that lag outside of NCCL.
// Empty if every rank that lags is in a call.
[[nodiscard]] std::set<std::int32_t> ranks_held_up_in_calls(const Communicator &comm);

} // namespace collwire::diagnose
