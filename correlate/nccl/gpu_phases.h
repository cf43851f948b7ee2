// SPDX-License-Identifier: Apache-2.0
// Operations with their kernels: for each kind of operation, where the ranks' time went.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "correlate/gpu/operation_phases.h"
#include "correlate/model/model.h"

namespace collwire::nccl {

// Operations of one communicator with equal function, size and algorithm.
struct GpuKind {
    Index comm = NONE;
    std::uint8_t func = 0;
    std::uint8_t algorithm = 0;
    std::uint8_t protocol = 0;
    model::Known size_bytes;
    friend auto operator<=>(const GpuKind &, const GpuKind &) = default;
};

// Of each rank of each operation. Nanoseconds; sorted.
struct GpuPhases {
    std::uint64_t operations = 0; // with a kernel of at least one rank
    std::uint64_t whole = 0;      // with the kernels of all ranks
    std::uint64_t rank_kernels = 0;
    std::vector<std::uint64_t> late_host_ns, late_gpu_ns;
    // Between ranks: only of operations with the kernels of all ranks.
    std::vector<std::uint64_t> waiting_ns, moving_ns;
    std::map<std::int32_t, std::uint64_t> last_ranks; // how often a rank's kernel started last
    std::vector<std::uint64_t> last_behind_first_ns;
};

// `share` of the sorted samples is at most the result. 0 for none: ask whether there are any.
[[nodiscard]] std::uint64_t percentile(const std::vector<std::uint64_t> &sorted, unsigned percent);

[[nodiscard]] std::map<GpuKind, GpuPhases> gpu_phases(const model::Model &model);

} // namespace collwire::nccl
