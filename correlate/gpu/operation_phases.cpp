// SPDX-License-Identifier: Apache-2.0
#include "correlate/gpu/operation_phases.h"

#include <algorithm>

namespace collwire::gpu {

namespace {

std::uint64_t after(std::uint64_t later_ns, std::uint64_t earlier_ns) {
    return later_ns > earlier_ns ? later_ns - earlier_ns : 0;
}

std::uint64_t error_between_ns(const RankKernel &a, const RankKernel &b) {
    return a.clock == b.clock ? 0 : a.clock_error_ns + b.clock_error_ns;
}

// Of one rank's times against those of all others.
std::uint64_t error_against_all_ns(const RankKernel &kernel, std::span<const RankKernel> kernels) {
    std::uint64_t most_ns = 0;
    for (const RankKernel &other : kernels)
        most_ns = std::max(most_ns, error_between_ns(kernel, other));
    return most_ns;
}

bool is_certainly_first(const RankKernel &kernel, std::span<const RankKernel> kernels) {
    return std::all_of(kernels.begin(), kernels.end(), [&](const RankKernel &other) {
        const std::uint64_t error_ns = error_between_ns(kernel, other);
        return &other == &kernel || other.launch_ns == 0 ||
               (error_ns == 0 ? other.launch_ns >= kernel.launch_ns
                              : after(other.launch_ns, kernel.launch_ns) > error_ns);
    });
}

} // namespace

std::vector<RankPhases> phases_of(std::span<const RankKernel> kernels) {
    std::uint64_t first_launch_ns = UINT64_MAX, last_start_ns = 0;
    for (const RankKernel &kernel : kernels) {
        if (kernel.launch_ns != 0)
            first_launch_ns = std::min(first_launch_ns, kernel.launch_ns);
        last_start_ns = std::max(last_start_ns, kernel.start_ns);
    }
    const LastRank last = last_rank_of(kernels);
    std::vector<RankPhases> all;
    all.reserve(kernels.size());
    for (const RankKernel &kernel : kernels) {
        RankPhases phases;
        phases.rank = kernel.rank;
        phases.has_launch = kernel.launch_ns != 0;
        const std::uint64_t error_ns = error_against_all_ns(kernel, kernels);
        phases.meeting_error_ns = last.is_certain && last.rank == kernel.rank ? 0 : error_ns;
        if (phases.has_launch) {
            phases.late_host_ns = kernel.launch_ns - first_launch_ns;
            phases.late_host_error_ns = is_certainly_first(kernel, kernels) ? 0 : error_ns;
            // The probe fires just after the call in which the kernel may have started.
            phases.late_gpu_ns = after(kernel.start_ns, kernel.launch_ns);
        }
        phases.is_running = kernel.end_ns == 0;
        const std::uint64_t met_ns =
            phases.is_running ? last_start_ns : std::min(last_start_ns, kernel.end_ns);
        phases.waiting_ns = after(met_ns, kernel.start_ns);
        if (!phases.is_running)
            phases.moving_ns = after(kernel.end_ns, std::max(met_ns, kernel.start_ns));
        all.push_back(phases);
    }
    return all;
}

LastRank last_rank_of(std::span<const RankKernel> kernels) {
    if (kernels.size() < 2)
        return {};
    std::vector<RankKernel> order(kernels.begin(), kernels.end());
    std::sort(order.begin(), order.end(), [](const RankKernel &a, const RankKernel &b) {
        return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.rank < b.rank;
    });
    const RankKernel &last = order.back();
    const bool is_certain =
        std::all_of(order.begin(), order.end() - 1, [&](const RankKernel &other) {
            const std::uint64_t error_ns = error_between_ns(last, other);
            return error_ns == 0 || last.start_ns - other.start_ns > error_ns;
        });
    return {last.rank, last.start_ns - order[order.size() - 2].start_ns,
            last.start_ns - order.front().start_ns, is_certain};
}

} // namespace collwire::gpu
