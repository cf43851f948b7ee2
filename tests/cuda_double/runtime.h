// SPDX-License-Identifier: Apache-2.0
// What the runtime_*.cpp files share. Their functions are exported under CUDA's own names.
#pragma once

#include <cstdint>

#include "tests/cuda_double/engine.h"
#include "tests/cuda_double/fakecuda/cuda_runtime.h"

namespace collwire::cuda_double {

// What a cudaEvent_t points to.
struct EventHandle {
    EventPointer state = std::make_shared<EventState>();
    std::uint64_t captured_in = 0; // id of a graph; 0: none
};

int &current_device(); // of the thread
bool is_device(int device);
void *open_driver();          // what dlopen("libcuda.so") gives
void *context_of(int device); // distinguished by its address alone
cudaError_t failed(cudaError_t error);
int device_attribute(int attribute, int device);

Stream &stream_of(cudaStream_t handle);
EventHandle &event_of(cudaEvent_t handle);

std::unique_ptr<WorkItem> make_record(const EventPointer &event);
std::unique_ptr<WorkItem> make_wait(const EventPointer &event);
std::unique_ptr<WorkItem> make_host_call(cudaHostFn_t function, void *user);

} // namespace collwire::cuda_double
