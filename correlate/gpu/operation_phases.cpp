// SPDX-License-Identifier: Apache-2.0
#include "correlate/gpu/operation_phases.h"

#include <algorithm>

namespace collwire::gpu {

namespace {

std::uint64_t after(std::uint64_t later_ns, std::uint64_t earlier_ns) {
    return later_ns > earlier_ns ? later_ns - earlier_ns : 0;
}

} // namespace

std::vector<RankPhases> phases_of(std::span<const RankKernel> kernels) {
    std::uint64_t first_launch_ns = UINT64_MAX, last_start_ns = 0;
    for (const RankKernel &kernel : kernels) {
        if (kernel.launch_ns != 0)
            first_launch_ns = std::min(first_launch_ns, kernel.launch_ns);
        last_start_ns = std::max(last_start_ns, kernel.start_ns);
    }
    std::vector<RankPhases> all;
    all.reserve(kernels.size());
    for (const RankKernel &kernel : kernels) {
        RankPhases phases;
        phases.rank = kernel.rank;
        phases.has_launch = kernel.launch_ns != 0;
        if (phases.has_launch) {
            phases.late_host_ns = kernel.launch_ns - first_launch_ns;
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
    return {last.rank, last.start_ns - order[order.size() - 2].start_ns,
            last.start_ns - order.front().start_ns};
}

} // namespace collwire::gpu
