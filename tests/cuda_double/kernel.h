// SPDX-License-Identifier: Apache-2.0
// What a kernel of NCCL does to memory, played on the CPU.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/cuda_double/engine.h"

namespace collwire::cuda_double {

struct Launch {
    std::string kernel;          // its demangled name, without parameters
    std::vector<char> arguments; // one after the other, without padding
};

// How many bytes each parameter has, for kernels whose parameters come as an array of pointers: the
// host's stub does not show. Fatal for a kernel that has no double.
std::vector<std::size_t> parameter_bytes(const std::string &kernel);

// Fatal for a kernel that has no double.
std::unique_ptr<WorkItem> make_kernel(const Launch &launch);

} // namespace collwire::cuda_double
