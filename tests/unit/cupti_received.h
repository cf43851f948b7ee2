// SPDX-License-Identifier: Apache-2.0
// A test double of the recorder and of the two probes: it keeps what the guest's parts hand over,
// and sets the semaphore.
#pragma once

#include "collwire/gpu_records.h"

#include <vector>

namespace collwire::cupti {

struct Received {
    std::vector<cw_gpu_kernel_item> kernels;
    std::vector<cw_gpu_name_item> names;
    std::vector<cw_gpu_window_item> windows;
    std::vector<cw_gpu_state_item> states;
    std::vector<cw_gpu_channel_item> channels;
    std::vector<cw_gpu_profiler_item> profilers;
    std::vector<cw_gpu_batch> batches; // in order; their items are gone
};

// All that came since the last call.
Received take_received();

// A recorder wants a trace, or none.
void want_trace(bool is_wanted);
// So many recorders do.
void want_traces(unsigned short recorders);

} // namespace collwire::cupti
