// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/gpu_phases.h"

#include <algorithm>
#include <set>

#include "correlate/nccl/common_clock.h"
#include "correlate/nccl/describe.h"
#include "correlate/nccl/parts.h"

namespace collwire::nccl {

using model::Model;

namespace {

class PhaseReader {
public:
    explicit PhaseReader(const Model &model) : nccl_(model.nccl), clock_(model), parts_(model) {}

    std::map<GpuKind, GpuPhases> run() {
        for (const auto *all : {&nccl_.collectives, &nccl_.p2p})
            for (const Operation &operation : *all)
                add(operation);
        for (auto &[kind, phases] : kinds_)
            for (auto *samples : {&phases.late_host, &phases.late_gpu, &phases.waiting,
                                  &phases.moving, &phases.last_behind_first})
                std::sort(samples->begin(), samples->end());
        return std::move(kinds_);
    }

private:
    void add(const Operation &operation) {
        const std::vector<gpu::RankKernel> kernels = kernels_of(operation);
        if (kernels.empty())
            return;
        GpuPhases &phases = kinds_[{operation.comm, operation.func, operation.algorithm,
                                    operation.protocol, size_bytes(operation)}];
        std::set<std::int32_t> ranks;
        for (const gpu::RankKernel &kernel : kernels)
            ranks.insert(kernel.rank);
        const bool is_pair = operation.source >= 0 || operation.destination >= 0;
        const std::size_t wanted =
            is_pair ? 2 : static_cast<std::size_t>(nccl_.communicators[operation.comm].n_ranks);
        const bool is_whole = ranks.size() == wanted && kernels.size() == wanted;
        ++phases.operations;
        phases.whole += is_whole;
        phases.rank_kernels += kernels.size();
        for (const gpu::RankPhases &rank : gpu::phases_of(kernels)) {
            if (rank.has_launch) {
                phases.late_gpu.push_back({rank.late_gpu_ns, 0});
                if (is_whole)
                    phases.late_host.push_back({rank.late_host_ns, rank.late_host_error_ns});
            }
            if (!is_whole)
                continue;
            phases.waiting.push_back({rank.waiting_ns, rank.meeting_error_ns});
            if (!rank.is_running)
                phases.moving.push_back({rank.moving_ns, rank.meeting_error_ns});
        }
        if (const gpu::LastRank last = gpu::last_rank_of(kernels); is_whole && last.rank >= 0) {
            if (!last.is_certain) {
                ++phases.last_within_error;
                return;
            }
            ++phases.last_ranks[last.rank];
            phases.last_behind_first.push_back({last.behind_first_ns, 0});
        }
    }

    [[nodiscard]] std::vector<gpu::RankKernel> kernels_of(const Operation &operation) const {
        std::vector<gpu::RankKernel> kernels;
        for (const OperationCall &call : parts_.calls_of(operation)) {
            if (call.launch == NONE)
                continue;
            const Instance &instance = nccl_.instances[call.instance];
            const auto &launches = nccl_.gathered.streams[instance.stream].launches;
            const auto &[process, index] = nccl_.gpu.kernel_of_launch[instance.stream][call.launch];
            if (process == NONE)
                continue;
            const GpuKernel &kernel = nccl_.gathered.gpu_processes[process].kernels[index];
            if (kernel.start_ns == 0)
                continue;
            const auto on_common_clock = [&](std::uint64_t time_ns) {
                return time_ns == 0 ? 0 : clock_.time_ns(instance.host, time_ns);
            };
            const CommonTime start = clock_.time(instance.host, kernel.start_ns);
            kernels.push_back({instance.record.rank, on_common_clock(launches[call.launch].time_ns),
                               start.time_ns, on_common_clock(kernel.end_ns), instance.host,
                               start.error_ns().value_or(gpu::NO_BOUND_NS)});
        }
        return kernels;
    }

    const NcclFacts &nccl_;
    CommonClock clock_;
    Parts parts_;
    std::map<GpuKind, GpuPhases> kinds_;
};

} // namespace

PhaseSample percentile(const std::vector<PhaseSample> &sorted, unsigned percent) {
    if (sorted.empty())
        return {};
    const std::size_t place = (sorted.size() * percent + 99) / 100;
    return sorted[std::min(std::max<std::size_t>(place, 1), sorted.size()) - 1];
}

std::map<GpuKind, GpuPhases> gpu_phases(const Model &model) {
    if (!model.nccl.gpu.is_recorded())
        return {};
    return PhaseReader(model).run();
}

} // namespace collwire::nccl
