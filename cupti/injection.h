// SPDX-License-Identifier: Apache-2.0
// The one instance of the guest in a process, for the functions that others call.
#pragma once

#include "nccl_profiler.h"

namespace collwire::cupti {

NcclProfiler &nccl_profiler();

// One look at whether the profiler shall trace: where CUPTI cannot.
void poll_nccl_profiler();

// Starts the guest's thread, once. Called by CUDA's driver, or by NCCL with a communicator.
void start_guest();

// False in a child of a fork: there is no thread of the guest.
bool is_guest_process();

} // namespace collwire::cupti
