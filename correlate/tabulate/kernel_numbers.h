// SPDX-License-Identifier: Apache-2.0
// Numbers of GPU kernels over all processes: kernels.kernel.
#pragma once

#include <cstdint>
#include <vector>

#include "correlate/nccl/gathered.h"

namespace collwire::tabulate {

class KernelNumbers {
public:
    explicit KernelNumbers(const nccl::Gathered &gathered) {
        std::uint64_t first = 0;
        for (const nccl::GpuProcess &process : gathered.gpu_processes) {
            first_.push_back(first);
            first += process.kernels.size();
        }
    }
    [[nodiscard]] std::uint64_t of(model::Index process, std::uint32_t kernel) const {
        return first_[process] + kernel;
    }

private:
    std::vector<std::uint64_t> first_; // by process
};

} // namespace collwire::tabulate
