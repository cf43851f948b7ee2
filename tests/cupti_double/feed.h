// SPDX-License-Identifier: Apache-2.0
// What the test double of CUDA reports to the test double of CUPTI. Both are of one build: nothing
// here is kept for an older one.
#pragma once

#include <array>
#include <cstdint>

namespace collwire::cupti_double {

// A kernel that the CUDA double has accepted. Times are CLOCK_MONOTONIC.
struct KernelLaunch {
    std::uint64_t id = 0;          // of the kernel in this process, from 1
    std::uint32_t correlation = 0; // of the API call: all kernels of a graph launch share it
    std::uint32_t device = 0;
    std::uint32_t context = 0;
    std::uint32_t stream = 0;
    std::uint32_t channel = 0;
    std::uint32_t graph = 0;      // 0: no graph
    std::uint64_t graph_node = 0; // 0: no graph
    const void *context_handle = nullptr;
    const char *name = ""; // mangled; stays in memory
    std::array<unsigned, 3> grid{1, 1, 1};
    std::array<unsigned, 3> block{1, 1, 1};
    std::array<unsigned, 3> cluster{1, 1, 1};
    bool is_nccl = false;
    std::uint64_t launched_ns = 0;
};

// Called on the launching thread, and on the engine's for the times. 0 in `earlier`: not yet.
struct KernelObserver {
    void (*earlier)(const KernelLaunch &launch, std::uint64_t started_ns,
                    std::uint64_t ended_ns) = nullptr; // launched before the observer was there
    void (*launched)(const KernelLaunch &launch) = nullptr;
    void (*started)(std::uint64_t id, std::uint64_t at_ns) = nullptr;
    void (*ended)(std::uint64_t id, std::uint64_t at_ns) = nullptr;
};

struct CudaState {
    bool (*is_initialised)() = nullptr;
    // Launches before the observer came that are no longer known.
    std::uint64_t (*forgotten_launches)() = nullptr;
};

// libcuda_double.so exports it. The observer must stay in memory; it has the earlier kernels
// when the call returns.
using ObserveFunction = const CudaState *(*)(const KernelObserver *observer);
inline constexpr char OBSERVE_FUNCTION[] = "collwire_cuda_double_observe";

} // namespace collwire::cupti_double
