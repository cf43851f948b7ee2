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

// A time between ranks, and how far the clocks of their hosts allow it to be off.
struct PhaseSample {
    std::uint64_t value_ns = 0;
    std::uint64_t error_ns = 0;

    // No claim then: the time may be nothing.
    [[nodiscard]] bool is_within_error() const { return error_ns != 0 && error_ns >= value_ns; }
    friend auto operator<=>(const PhaseSample &, const PhaseSample &) = default;
};

// Of each rank of each operation. Sorted.
struct GpuPhases {
    std::uint64_t operations = 0; // with a kernel of at least one rank
    std::uint64_t whole = 0;      // with the kernels of all ranks
    std::uint64_t rank_kernels = 0;
    std::vector<PhaseSample> late_host, late_gpu;
    // Between ranks: only of operations with the kernels of all ranks.
    std::vector<PhaseSample> waiting, moving;
    std::map<std::int32_t, std::uint64_t> last_ranks; // how often a rank's kernel started last
    std::uint64_t last_within_error = 0;        // operations whose last rank the clocks do not show
    std::vector<PhaseSample> last_behind_first; // of the others
};

// `share` of the sorted samples is at most the result. 0 for none: ask whether there are any.
[[nodiscard]] PhaseSample percentile(const std::vector<PhaseSample> &sorted, unsigned percent);

[[nodiscard]] std::map<GpuKind, GpuPhases> gpu_phases(const model::Model &model);

} // namespace collwire::nccl
