// SPDX-License-Identifier: Apache-2.0
// Reports to an observer, the double of CUPTI, which kernels are launched, and when they run.
#pragma once

#include <cstdint>

#include "tests/cuda_double/engine.h"
#include "tests/cupti_double/feed.h"

namespace collwire::cuda_double {

using cupti_double::KernelLaunch;

// A CUDA call of this thread that launches; has a correlation id of its own. They nest.
class LaunchingCall {
public:
    explicit LaunchingCall(const Stream &stream);
    ~LaunchingCall();
    LaunchingCall(const LaunchingCall &) = delete;
    LaunchingCall &operator=(const LaunchingCall &) = delete;

    // Fills what the call determines: ids, stream, device, context, time.
    static void describe(KernelLaunch &launch);

private:
    const LaunchingCall *outer_;
    const Stream &stream_;
    int device_;
    std::uint32_t correlation_;
};

// CUDA counts its calls, whether they launch or not.
std::uint32_t next_correlation();

// Takes an id for the launch.
void report_launched(KernelLaunch &launch);
// The times are taken by the call.
void report_started(std::uint64_t id);
void report_ended(std::uint64_t id);

} // namespace collwire::cuda_double
