// SPDX-License-Identifier: Apache-2.0
// What kernels write for NCCL's profiler: per channel, which work has started and which has ended.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/cuda_double/device_state.h"

namespace collwire::cuda_double {

class ProfilerCounters {
public:
    ProfilerCounters(const Communicator &communicator, const Channel &channel);

    void batch_started(const std::vector<bool> &profiled) const { write(true, profiled); }
    void batch_ended(const std::vector<bool> &profiled);
    void kernel_ended() const; // keeps the count for the next kernel

private:
    void write(bool is_start, const std::vector<bool> &profiled) const;

    char *communicator_;
    char *channel_;
    int channel_id_;
    std::uint64_t works_ = 0; // that have ended
};

} // namespace collwire::cuda_double
