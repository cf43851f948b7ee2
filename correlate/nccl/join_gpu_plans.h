// SPDX-License-Identifier: Apache-2.0
// Kernels whose times NCCL's profiler gave, and their launches.
#pragma once

#include "correlate/model/model.h"
#include "correlate/nccl/gpu_kernels.h"
#include "correlate/nccl/nccl_facts.h"

namespace collwire::nccl {

// What of a launch a kernel must agree with.
[[nodiscard]] gpu::LaunchFact launch_fact(const NcclFacts &nccl, const Launch &launch);

// Of one of Gathered::gpu_processes, after its kernels from CUPTI: a launch that has one of them
// keeps it. Adds a kernel to the process for each execution of a kernel plan.
void join_gpu_plans(model::Model &model, Index process, GpuGuest &guest);

} // namespace collwire::nccl
