// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>

#include "correlate/nccl/gpu_kernels.h"
#include "correlate/nccl/join_gpu_plans.h"
#include "correlate/nccl/resolve.h"

namespace collwire::nccl {

using model::Model;

namespace {

struct LaunchAt {
    Index stream = NONE;
    std::uint32_t launch = 0;
};

} // namespace

gpu::LaunchFact launch_fact(const NcclFacts &nccl, const Launch &launch) {
    gpu::LaunchFact fact;
    fact.time_ns = launch.time_ns;
    fact.is_replay = (launch.flags & CW_NCCL_LAUNCH_GRAPH) != 0;
    fact.channels = launch.channels;
    if (launch.shape_index == NONE)
        return fact;
    const std::vector<cw_nccl_shape_task> &tasks = nccl.shapes[launch.shape_index].tasks;
    if (tasks.empty())
        return fact;
    // Captures before 1.9. Several tasks share channels.
    if (fact.channels == 0 && tasks.size() == 1)
        fact.channels = tasks.front().n_channels;
    // Of several functions NCCL takes the kernel of any, and of several broadcasts it makes an
    // AllGatherV (2.29).
    const std::uint8_t func = tasks.front().func;
    if (func <= CW_NCCL_ALL_REDUCE && (func != CW_NCCL_BROADCAST || tasks.size() == 1) &&
        std::ranges::all_of(tasks, [func](const auto &task) { return task.func == func; }))
        fact.func = func;
    return fact;
}

namespace {

class GpuJoiner {
public:
    explicit GpuJoiner(Model &model) : model_(model), nccl_(model.nccl) {}

    void run() {
        const auto &processes = nccl_.gathered.gpu_processes;
        if (processes.empty())
            return;
        for (const CommStream &stream : nccl_.gathered.streams)
            nccl_.gpu.kernel_of_launch.emplace_back(stream.launches.size(),
                                                    std::pair<Index, std::uint32_t>{NONE, 0});
        for (Index process = 0; process < processes.size(); ++process)
            if (!model_.sessions[processes[process].session].excluded)
                join(process);
    }

private:
    void join(Index index) {
        const GpuProcess &process = nccl_.gathered.gpu_processes[index];
        nccl_.gpu.guests.push_back(guest_of(index));
        const GpuGuest &guest = nccl_.gpu.guests.back();
        std::map<std::uint16_t, std::vector<std::uint32_t>> kernels_of_device;
        for (std::uint32_t i = 0; i < process.kernels.size(); ++i)
            kernels_of_device[process.kernels[i].device].push_back(i);
        std::map<std::uint16_t, std::vector<LaunchAt>> launches_of_device = launches_of(process);
        // NCCL's profiler alone traced it.
        if (guest.spans.empty() && process.kernels.empty() && !process.profiler_states.empty())
            launches_of_device.clear();
        for (const auto &[device, launches] : launches_of_device)
            kernels_of_device[device]; // without kernels: coverage 0
        for (const auto &[device, kernels] : kernels_of_device)
            join_device(index, device, guest, kernels, launches_of_device[device]);
        join_gpu_plans(model_, index, nccl_.gpu.guests.back());
    }

    // From the guest's states: armed, until it was not.
    GpuGuest guest_of(Index index) const {
        const GpuProcess &process = nccl_.gathered.gpu_processes[index];
        std::vector<GpuState> states = process.states;
        std::stable_sort(states.begin(), states.end(), [](const GpuState &a, const GpuState &b) {
            return a.time_ns < b.time_ns;
        });
        GpuGuest guest;
        guest.process = index;
        bool is_armed = false;
        for (std::size_t i = 0; i < states.size(); ++i) {
            const GpuState &state = states[i];
            // Each segment of a capture repeats the last state of the one before it.
            if (i != 0 && state.time_ns == states[i - 1].time_ns &&
                state.item.state == states[i - 1].item.state)
                continue;
            guest.last = state.item;
            guest.yields = state.item.yields;
            if (state.item.state == CW_GPU_ARMED) {
                guest.spans.push_back({state.item.begin_ns, state.item.end_ns, UINT64_MAX});
                is_armed = true;
            } else if (state.item.state == CW_GPU_RUNNING && !is_armed) {
                // Armed by another recorder before: since when is not known.
                guest.spans.push_back({state.time_ns, state.time_ns, UINT64_MAX});
                is_armed = true;
            } else if (is_armed && state.item.state != CW_GPU_RUNNING) {
                const std::uint64_t until_ns = state.item.begin_ns != 0 ? state.item.begin_ns
                                               : state.item.end_ns != 0 ? state.item.end_ns
                                                                        : state.time_ns;
                guest.spans.back().disarming_begin_ns = until_ns;
                is_armed = false;
            }
        }
        return guest;
    }

    [[nodiscard]] std::map<std::uint16_t, std::vector<LaunchAt>>
    launches_of(const GpuProcess &process) const {
        std::map<std::uint16_t, std::vector<LaunchAt>> by_device;
        const auto &streams = nccl_.gathered.streams;
        for (const Instance &instance : nccl_.instances) {
            const CommStream &stream = streams[instance.stream];
            if (stream.session != process.session || stream.tgid != process.tgid)
                continue;
            auto &launches =
                by_device[static_cast<std::uint16_t>(std::max(instance.record.cuda_dev, 0))];
            for (std::uint32_t i = 0; i < instance.n_launches; ++i)
                launches.push_back({instance.stream, instance.first_launch + i});
        }
        for (auto &[device, launches] : by_device)
            std::sort(launches.begin(), launches.end(),
                      [this](const LaunchAt &a, const LaunchAt &b) {
                          const Launch of_a = launch_at(a), of_b = launch_at(b);
                          return of_a.time_ns != of_b.time_ns ? of_a.time_ns < of_b.time_ns
                                                              : of_a.order < of_b.order;
                      });
        return by_device;
    }

    [[nodiscard]] Launch launch_at(const LaunchAt &at) const {
        return nccl_.gathered.streams[at.stream].launches[at.launch];
    }

    void join_device(Index index, std::uint16_t device, const GpuGuest &guest,
                     const std::vector<std::uint32_t> &kernels,
                     const std::vector<LaunchAt> &launches) {
        const GpuProcess &process = nccl_.gathered.gpu_processes[index];
        std::vector<gpu::LaunchFact> launch_facts;
        launch_facts.reserve(launches.size());
        for (const LaunchAt &at : launches)
            launch_facts.push_back(launch_fact(nccl_, launch_at(at)));
        std::vector<gpu::KernelFact> kernel_facts;
        kernel_facts.reserve(kernels.size());
        GpuTrace trace;
        trace.process = index;
        trace.device = device;
        trace.kernels = kernels.size();
        for (const std::uint32_t i : kernels) {
            const GpuKernel &kernel = process.kernels[i];
            kernel_facts.push_back({kernel.start_ns, kernel.end_ns, kernel.graph_node,
                                    kernel.correlation, kernel.blocks, kernel.func});
            trace.queued += kernel.start_ns == 0;
            trace.running += kernel.start_ns != 0 && kernel.end_ns == 0;
            trace.odd_times += kernel.is_odd_time;
        }
        const gpu::KernelJoin join = gpu::join_kernels(launch_facts, kernel_facts, guest.spans);
        for (std::size_t i = 0; i < kernels.size(); ++i) {
            if (join.kernels[i].match == gpu::Match::None)
                continue;
            const LaunchAt &at = launches[join.kernels[i].launch];
            nccl_.gpu.kernel_of_launch[at.stream][at.launch] = {index, kernels[i]};
        }
        trace.exact = join.exact;
        trace.by_time = join.by_time;
        trace.contradicted = join.contradicted;
        trace.without_launch = join.without_launch;
        trace.traced_launches = join.traced_launches;
        trace.without_kernel = join.without_kernel;
        const std::uint64_t end_ns = model_.sessions[process.session].end_ns;
        for (const gpu::TracedSpan &span : guest.spans)
            trace.traced_ns +=
                std::max(std::min(span.disarming_begin_ns, end_ns), span.armed_ns) - span.armed_ns;
        for (const cw_gpu_window_item &window : process.windows)
            if (window.device == device) {
                trace.busy_ns += window.busy_ns;
                trace.nccl_ns += window.nccl_ns;
                trace.overlap_ns += window.overlap_ns;
                trace.other_kernels += window.kernels;
                ++trace.windows;
            }
        nccl_.gpu.traces.push_back(trace);
    }

    Model &model_;
    NcclFacts &nccl_;
};

} // namespace

void join_gpu(Model &model) {
    GpuJoiner(model).run();
}

} // namespace collwire::nccl
