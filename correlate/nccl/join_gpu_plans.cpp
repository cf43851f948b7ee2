// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/join_gpu_plans.h"

#include <algorithm>
#include <map>

#include "correlate/gpu/join_plans.h"

namespace collwire::nccl {

using model::Model;

namespace {

struct LaunchAt {
    Index stream = NONE;
    std::uint32_t launch = 0;
};

// NCCL's words for a communicator. Several have one hash where NCCL made them so.
using CommKey = std::pair<std::uint64_t, std::uint32_t>; // hash, rank

struct CommPlans {
    std::vector<gpu::ChannelFact> channels;
    std::vector<LaunchAt> launches;
    std::uint16_t device = 0;
    bool is_recorded = false;
    bool is_out_of_step = false;
    std::uint64_t odd_times = 0, seen = 0;
};

class PlanJoiner {
public:
    PlanJoiner(Model &model, Index index, GpuGuest &guest)
        : model_(model), nccl_(model.nccl), index_(index), guest_(guest),
          process_(nccl_.gathered.gpu_processes[index]) {}

    void run() {
        if (process_.profiler_states.empty() && process_.channels.empty())
            return;
        guest_.has_profiler = true;
        read_states();
        gather();
        std::map<std::uint16_t, GpuTrace> traces;
        for (auto &[key, comm] : comms_)
            if (comm.is_recorded)
                join(comm, traces[comm.device]);
            else
                guest_.orphans += comm.channels.size();
        const std::uint64_t end_ns = model_.sessions[process_.session].end_ns;
        for (auto &[device, trace] : traces) {
            trace.process = index_;
            trace.device = device;
            trace.source = CW_GPU_SOURCE_PROFILER;
            for (const gpu::TracedSpan &span : guest_.profiler_spans)
                trace.traced_ns +=
                    std::max(std::min(span.disarming_begin_ns, end_ns), span.armed_ns) -
                    span.armed_ns;
            nccl_.gpu.traces.push_back(trace);
        }
    }

private:
    // From the plugin's states: armed, until it was not.
    void read_states() {
        std::vector<GpuProfilerState> states = process_.profiler_states;
        std::ranges::stable_sort(states, {}, &GpuProfilerState::time_ns);
        bool is_armed = false;
        for (const GpuProfilerState &state : states) {
            guest_.profiler_last = state.item;
            if (state.item.state == CW_GPU_ARMED && !is_armed) {
                guest_.profiler_spans.push_back(
                    {state.item.begin_ns, state.item.end_ns, UINT64_MAX});
                is_armed = true;
            } else if (state.item.state == CW_GPU_RUNNING && !is_armed) {
                // Armed by another recorder before: since when is not known.
                guest_.profiler_spans.push_back({state.time_ns, state.time_ns, UINT64_MAX});
                is_armed = true;
            } else if (is_armed && state.item.state != CW_GPU_RUNNING &&
                       state.item.state != CW_GPU_ARMED) {
                guest_.profiler_spans.back().disarming_begin_ns =
                    state.item.begin_ns != 0 ? state.item.begin_ns : state.time_ns;
                is_armed = false;
            }
        }
    }

    void gather() {
        for (const cw_gpu_channel_item &item : process_.channels) {
            if ((item.flags & CW_GPU_CHANNEL_NO_TASK) != 0) {
                ++guest_.orphans;
                continue;
            }
            CommPlans &comm = comms_[{item.comm_hash, item.rank}];
            comm.channels.push_back(
                {item.plan, item.posted_ns, item.start_ns, item.end_ns, item.channel, item.func});
            comm.is_out_of_step =
                comm.is_out_of_step || (item.flags & CW_GPU_CHANNEL_OUT_OF_STEP) != 0;
            comm.odd_times += (item.flags & CW_GPU_CHANNEL_ODD_TIME) != 0;
            comm.seen += (item.flags & CW_GPU_CHANNEL_SEEN) != 0;
        }
        for (const Instance &instance : nccl_.instances) {
            const CommStream &stream = nccl_.gathered.streams[instance.stream];
            if (stream.session != process_.session || stream.tgid != process_.tgid)
                continue;
            CommPlans &comm = comms_[{instance.record.comm_hash,
                                      static_cast<std::uint32_t>(instance.record.rank)}];
            comm.is_recorded = true;
            comm.device = static_cast<std::uint16_t>(std::max(instance.record.cuda_dev, 0));
            for (std::uint32_t i = 0; i < instance.n_launches; ++i)
                comm.launches.push_back({instance.stream, instance.first_launch + i});
        }
    }

    [[nodiscard]] Launch launch_at(const LaunchAt &at) const {
        return nccl_.gathered.streams[at.stream].launches[at.launch];
    }

    void join(CommPlans &comm, GpuTrace &trace) {
        std::ranges::sort(comm.launches, {},
                          [this](const LaunchAt &at) { return launch_at(at).time_ns; });
        std::vector<gpu::LaunchFact> launches;
        launches.reserve(comm.launches.size());
        for (const LaunchAt &at : comm.launches)
            launches.push_back(launch_fact(nccl_, launch_at(at)));
        std::vector<gpu::PlanFact> plans = gpu::plans_of(comm.channels);
        trace.kernels += plans.size();
        // Since when is not known: none of its times is used.
        if (comm.is_out_of_step) {
            trace.out_of_step += plans.size();
            plans.clear();
        }
        const gpu::KernelJoin joined = gpu::join_plans(launches, plans, guest_.profiler_spans);
        for (std::size_t i = 0; i < plans.size(); ++i) {
            trace.running += plans[i].end_ns == 0;
            if (joined.kernels[i].match == gpu::Match::None)
                continue;
            const LaunchAt &at = comm.launches[joined.kernels[i].launch];
            auto &kernel = nccl_.gpu.kernel_of_launch[at.stream][at.launch];
            if (kernel.first != NONE)
                continue; // from CUPTI
            kernel = {index_, static_cast<std::uint32_t>(process_.kernels.size())};
            GpuKernel &added = process_.kernels.emplace_back();
            added.start_ns = plans[i].start_ns;
            added.end_ns = plans[i].end_ns;
            added.blocks = plans[i].channels;
            added.device = comm.device;
            added.func = plans[i].func;
            added.source = CW_GPU_SOURCE_PROFILER;
        }
        trace.exact += joined.exact;
        trace.contradicted += joined.contradicted;
        trace.without_launch += joined.without_launch;
        trace.traced_launches += joined.traced_launches;
        trace.without_kernel += joined.without_kernel;
        trace.odd_times += comm.odd_times;
        if (comm.seen != 0)
            guest_.seen_kernels += plans.size();
    }

    Model &model_;
    NcclFacts &nccl_;
    Index index_;
    GpuGuest &guest_;
    GpuProcess &process_;
    std::map<CommKey, CommPlans> comms_;
};

} // namespace

void join_gpu_plans(Model &model, Index process, GpuGuest &guest) {
    PlanJoiner(model, process, guest).run();
}

} // namespace collwire::nccl
