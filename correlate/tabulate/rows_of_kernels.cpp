// SPDX-License-Identifier: Apache-2.0
#include "correlate/tabulate/rows_of_kernels.h"

#include <unordered_map>

#include "collwire/nccl_comm_records.h"
#include "correlate/nccl/describe.h"
#include "correlate/rows/gpu_rows.h"
#include "correlate/tabulate/convert.h"
#include "correlate/tabulate/kernel_numbers.h"

namespace collwire::tabulate {

using model::Index;
using model::Model;
using model::NONE;

namespace {

struct LaunchOfKernel {
    Index instance = NONE;
    std::uint32_t launch = 0; // in its stream
};

// By number of the kernel.
std::unordered_map<std::uint64_t, LaunchOfKernel>
launches_of_kernels(const nccl::NcclFacts &nccl, const KernelNumbers &kernels) {
    std::unordered_map<std::uint64_t, LaunchOfKernel> launches;
    for (Index index = 0; index < nccl.instances.size(); ++index) {
        const nccl::Instance &instance = nccl.instances[index];
        const auto &of_stream = nccl.gpu.kernel_of_launch[instance.stream];
        for (std::uint32_t i = 0; i < instance.n_launches; ++i) {
            const auto &[process, kernel] = of_stream[instance.first_launch + i];
            if (process != NONE)
                launches[kernels.of(process, kernel)] = {index, instance.first_launch + i};
        }
    }
    return launches;
}

rows::KernelRow kernel_row(const model::Host &host, const nccl::GpuKernel &kernel) {
    rows::KernelRow row;
    row.host = host.name;
    row.device = kernel.device;
    row.source = kernel.source == CW_GPU_SOURCE_PROFILER ? rows::KernelSource::NcclProfiler
                                                         : rows::KernelSource::Cupti;
    if (kernel.func != CW_NCCL_FUNC_UNKNOWN)
        row.op = nccl::func_text(kernel.func);
    if (kernel.start_ns != 0)
        row.start_realtime_ns = host.realtime_ns(kernel.start_ns);
    if (kernel.end_ns != 0)
        row.end_realtime_ns = host.realtime_ns(kernel.end_ns);
    if (kernel.start_ns != 0 && kernel.end_ns >= kernel.start_ns)
        row.duration_ns = kernel.end_ns - kernel.start_ns;
    row.is_odd_time = kernel.is_odd_time;
    row.blocks = kernel.blocks;
    return row;
}

} // namespace

void rows_of_kernels(const Model &model, rows::RowSink &sink) {
    const nccl::NcclFacts &nccl = model.nccl;
    if (!nccl.gpu.is_recorded())
        return;
    const KernelNumbers numbers(nccl.gathered);
    const auto launches = launches_of_kernels(nccl, numbers);
    for (Index process = 0; process < nccl.gathered.gpu_processes.size(); ++process) {
        const nccl::GpuProcess &of = nccl.gathered.gpu_processes[process];
        const model::Session &session = model.sessions[of.session];
        if (session.excluded)
            continue;
        const model::Host &host = model.hosts[session.host];
        for (std::uint32_t i = 0; i < of.kernels.size() && !sink.is_stopped(); ++i) {
            rows::KernelRow row = kernel_row(host, of.kernels[i]);
            row.kernel = numbers.of(process, i);
            row.pid = of.tgid;
            if (const auto found = launches.find(row.kernel); found != launches.end()) {
                const nccl::Instance &instance = nccl.instances[found->second.instance];
                row.comm = if_index(instance.comm);
                row.rank = instance.record.rank;
                row.launched_realtime_ns = host.realtime_ns(
                    nccl.gathered.streams[instance.stream].launches[found->second.launch].time_ns);
            }
            rows::put(sink, row);
        }
    }
}

} // namespace collwire::tabulate
