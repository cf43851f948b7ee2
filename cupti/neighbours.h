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

// What the guest does when another tool asks CUPTI for something, on that tool's thread and before
// CUPTI sees the call.
using Yield = void (*)(const char *function);

// Finds libcupti if it is mapped, and the imports of all files that were loaded since the last
// call: those of CUPTI's functions, and those of dlsym, for tools that find CUPTI's functions by
// name. Cheap if no file was loaded. Not thread-safe.
void watch_neighbours(Yield yield);

// The receiver of records that a neighbour registered last: CUPTI has it in force, or the guest
// took its place. Null: none since the process's start or since CUPTI was finalized.
struct Receiver {
    RequestBuffer request = nullptr;
    BufferCompleted completed = nullptr;
};
Receiver neighbours_receiver();

// The period of flushes that a neighbour set, in ms; 0: none.
uint32_t neighbours_flush_period_ms();

// A neighbour has kinds of records enabled.
bool has_active_neighbour();

// It called CUPTI within the last second and may again, or it has not fetched its records yet, for
// which it has 10 s.
bool is_neighbour_resting();

// When a neighbour called CUPTI last, CLOCK_MONOTONIC; 0: never.
uint64_t last_neighbour_call_ns();

// A neighbour has this kind enabled.
bool has_neighbour_enabled(Kind kind);

// A neighbour has called CUPTI in this process, or may have before the guest came.
bool has_known_neighbour();

// A neighbour holds the subscriber's slot.
bool has_subscribed_neighbour();

// CUPTI is mapped, but no import and no lookup of its functions was seen: its user cannot be seen.
// Or it is mapped twice: the two copies disturb each other.
bool has_unseen_caller();

// The function that a neighbour called last.
const char *last_neighbour_function();

} // namespace collwire::cupti
