// SPDX-License-Identifier: Apache-2.0
// NCCL's GPU kernels: each with its launch, by process and device, and what share of the launches
// has one.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "correlate/gpu/join_kernels.h"
#include "correlate/nccl/gathered.h"

namespace collwire::nccl {

// One process's device, from one source.
struct GpuTrace {
    Index process = NONE; // in Gathered::gpu_processes
    std::uint16_t device = 0;
    std::uint8_t source = CW_GPU_SOURCE_CUPTI; // enum cw_gpu_source
    std::uint64_t kernels = 0;
    std::uint64_t exact = 0, by_time = 0, contradicted = 0, without_launch = 0;
    // Launches that began while the guest was armed, and those of them without a kernel.
    std::uint64_t traced_launches = 0, without_kernel = 0;
    std::uint64_t queued = 0;  // kernels that had not begun when their trace ended
    std::uint64_t running = 0; // others without an end
    std::uint64_t odd_times = 0;
    std::uint64_t out_of_step = 0; // kernels with times that may be another's: not used
    std::uint64_t traced_ns = 0;   // sum of the times in which the guest was armed
    // Sums of the windows. Other kernels' busy time, NCCL's, and both at once.
    // With CUPTI alone.
    std::uint64_t busy_ns = 0, nccl_ns = 0, overlap_ns = 0, windows = 0, other_kernels = 0;
};

// What the guest of a process said at last.
struct GpuGuest {
    Index process = NONE; // in Gathered::gpu_processes
    std::vector<gpu::TracedSpan> spans;
    cw_gpu_state_item last{};
    std::uint64_t yields = 0;
    // The guest as NCCL's profiler plugin.
    bool has_profiler = false;
    std::vector<gpu::TracedSpan> profiler_spans;
    cw_gpu_profiler_item profiler_last{};
    std::uint64_t orphans = 0;      // channels without an operation, or of no recorded communicator
    std::uint64_t seen_kernels = 0; // timed by NCCL's proxy thread
};

struct GpuFacts {
    std::vector<GpuGuest> guests;
    std::vector<GpuTrace> traces;
    // By stream and launch: (process in Gathered::gpu_processes, kernel). NONE: none.
    std::vector<std::vector<std::pair<Index, std::uint32_t>>> kernel_of_launch;

    [[nodiscard]] bool is_recorded() const { return !guests.empty(); }
};

} // namespace collwire::nccl
