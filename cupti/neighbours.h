// SPDX-License-Identifier: Apache-2.0
// Other users of CUPTI in this process: PyTorch's profiler, for one. Their files' imports of
// CUPTI's functions lead through the guest, so that it knows what they use, and is gone before
// CUPTI sees their call. CUPTI's activity records have one receiver in a process: what the guest
// receives is lost for the other.
#pragma once

#include "abi.h"

#include <cstddef>
#include <cstdint>

namespace collwire::cupti {

// What the guest does when another tool asks CUPTI for records, on that tool's thread and before
// CUPTI sees the call.
using Yield = void (*)(const char *function);

// Finds libcupti if it is mapped, and the imports of all files that were loaded since the last
// call. Cheap if there are none. For one thread at a time.
void watch_neighbours(Yield yield);

// A neighbour has kinds of records enabled, or a subscription.
bool has_active_neighbour();

// When a neighbour called CUPTI last, CLOCK_MONOTONIC; 0: never.
uint64_t last_neighbour_call_ns();

// CUPTI is mapped, but no file imports its functions: whoever loaded it calls it unseen.
bool has_unseen_caller();

// The function that a neighbour called last.
const char *last_neighbour_function();

} // namespace collwire::cupti
