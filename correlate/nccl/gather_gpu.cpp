// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "collwire/gpu_records.h"
#include "correlate/capture/reader.h"
#include "correlate/gpu/kernel_name.h"
#include "correlate/nccl/gather.h"

namespace collwire::nccl {

using capture::record_as;
using capture::text_of;

namespace {

// Of the names that no version of NCCL is known to use, as many are listed.
constexpr std::size_t MAX_UNKNOWN_NAMES = 64;

bool is_counted(std::uint64_t &count, std::uint64_t limit) {
    return ++count <= limit;
}

void count_unknown(GpuProcess &process, const std::string &name) {
    if (process.unknown_names.size() < MAX_UNKNOWN_NAMES || process.unknown_names.contains(name))
        ++process.unknown_names[name];
}

// A recorder that came in the middle of a trace has kernels before their names.
void name_earlier(GpuProcess &process, std::uint16_t number, const std::string &text) {
    const auto waiting = process.unnamed.extract(number);
    if (waiting.empty())
        return;
    const gpu::KernelName known = gpu::kernel_name_of(text);
    for (const std::uint32_t kernel : waiting.mapped()) {
        process.kernels[kernel].func = known.func;
        if (!known.is_known)
            count_unknown(process, text);
    }
    const auto without_name = process.unknown_names.find("");
    if (without_name == process.unknown_names.end())
        return;
    without_name->second -= std::min<std::uint64_t>(without_name->second, waiting.mapped().size());
    if (without_name->second == 0)
        process.unknown_names.erase(without_name);
}

} // namespace

GpuProcess &Gather::gpu_process_of(Index session, std::uint32_t tgid) {
    const auto [found, is_new] = gpu_processes_.try_emplace(
        AddressKey{0, session, tgid}, static_cast<Index>(gathered_.gpu_processes.size()));
    if (is_new) {
        gathered_.gpu_processes.emplace_back();
        gathered_.gpu_processes.back().session = session;
        gathered_.gpu_processes.back().tgid = tgid;
    }
    return gathered_.gpu_processes[found->second];
}

bool Gather::add_gpu_kernel(Index session, std::span<const std::byte> record) {
    const auto kernel = record_as<cw_gpu_kernel>(record);
    if (!is_counted(counts_.gpu_kernels, MAX_GPU_KERNELS))
        return false;
    const cw_gpu_kernel_item &item = kernel.kernel;
    GpuProcess &process = gpu_process_of(session, kernel.tgid);
    const auto name = process.names.find(item.name);
    gpu::KernelName known;
    if (name != process.names.end())
        known = gpu::kernel_name_of(name->second);
    else
        process.unnamed[item.name].push_back(static_cast<std::uint32_t>(process.kernels.size()));
    if (!known.is_known)
        count_unknown(process, name == process.names.end() ? "" : name->second);
    process.kernels.push_back({item.start_ns, item.end_ns, item.graph_node, item.correlation,
                               item.blocks, item.stream, item.device, known.func,
                               (item.flags & CW_GPU_KERNEL_ODD_TIME) != 0, CW_GPU_SOURCE_CUPTI});
    return true;
}

bool Gather::add_gpu_name(Index session, std::span<const std::byte> record) {
    const auto name = record_as<cw_gpu_name>(record);
    if (!is_counted(counts_.gpu_others, MAX_OTHER_RECORDS))
        return false;
    GpuProcess &process = gpu_process_of(session, name.tgid);
    std::string text(text_of(name.name.text));
    name_earlier(process, name.name.name, text);
    process.names[name.name.name] = std::move(text);
    return true;
}

bool Gather::add_gpu_window(Index session, std::span<const std::byte> record) {
    const auto window = record_as<cw_gpu_window>(record);
    if (!is_counted(counts_.gpu_windows, MAX_GPU_WINDOWS))
        return false;
    gpu_process_of(session, window.tgid).windows.push_back(window.window);
    return true;
}

bool Gather::add_gpu_trace(Index session, std::span<const std::byte> record) {
    const auto trace = record_as<cw_gpu_trace>(record);
    if (!is_counted(counts_.gpu_others, MAX_OTHER_RECORDS))
        return false;
    gpu_process_of(session, trace.tgid).states.push_back({trace.header.time_ns, trace.state});
    return true;
}

bool Gather::add_gpu_channel(Index session, std::span<const std::byte> record) {
    const auto channel = record_as<cw_gpu_channel>(record);
    if (!is_counted(counts_.gpu_kernels, MAX_GPU_KERNELS))
        return false;
    gpu_process_of(session, channel.tgid).channels.push_back(channel.channel);
    return true;
}

bool Gather::add_gpu_profiler(Index session, std::span<const std::byte> record) {
    const auto profiler = record_as<cw_gpu_profiler>(record);
    if (!is_counted(counts_.gpu_others, MAX_OTHER_RECORDS))
        return false;
    gpu_process_of(session, profiler.tgid)
        .profiler_states.push_back({profiler.header.time_ns, profiler.profiler});
    return true;
}

} // namespace collwire::nccl
