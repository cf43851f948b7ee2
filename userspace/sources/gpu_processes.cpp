// SPDX-License-Identifier: Apache-2.0
#include "userspace/sources/gpu_processes.h"

#include <cstring>
#include <string_view>

#include <fmt/format.h>

#include "userspace/process/process_view.h"

namespace collwire::sources {
namespace {

// Of a process: more than NCCL has kernels. Others keep their first record.
constexpr std::size_t MAX_NAMES = 4096;

bool is_tracing(const cw_gpu_trace &trace) {
    return trace.state.state == CW_GPU_ARMED || trace.state.state == CW_GPU_RUNNING;
}

bool is_tracing(const cw_gpu_profiler &trace) {
    return trace.profiler.state == CW_GPU_ARMED || trace.profiler.state == CW_GPU_RUNNING;
}

std::string_view because(std::uint32_t reason) {
    switch (reason) {
    case CW_GPU_REASON_NO_CUPTI:
        return "it finds no libcupti to load";
    case CW_GPU_REASON_OLD_CUPTI:
        return "the records of its CUPTI are not known";
    case CW_GPU_REASON_SUBSCRIBED:
        return "another tool has CUPTI's only subscription";
    case CW_GPU_REASON_OTHER_ACTIVITY:
        return "another tool has asked CUPTI for activity records";
    case CW_GPU_REASON_UNSEEN_CALLER:
        return "CUPTI was loaded in a way that cannot be watched";
    case CW_GPU_REASON_NO_MEMORY:
        return "no memory for buffers";
    case CW_GPU_REASON_CUPTI:
        return "an error of CUPTI";
    case CW_GPU_REASON_THREADS:
        return "several of its threads launch operations, and NCCL is older than 2.28";
    case CW_GPU_REASON_LATE:
        return "NCCL 2.31 and later, with communicators from before the recording";
    default:
        return "no reason given";
    }
}

} // namespace

GpuProcesses::Process &GpuProcesses::process_of(std::uint32_t tgid) {
    const auto pid = static_cast<pid_t>(tgid);
    auto [entry, is_new] = processes_.try_emplace(tgid);
    Process &process = entry->second;
    const auto ticks = process::start_ticks(pid).value_or(0);
    // The number of a process that exited may be another's by now.
    if (!is_new && ticks != 0 && ticks != process.start_ticks)
        process = {};
    if (process.start_ticks == 0) {
        process.start_ticks = ticks;
        process.has_exited = ticks == 0;
    }
    return process;
}

void GpuProcesses::on_name(const cw_gpu_name &record) {
    auto &names = process_of(record.tgid).names;
    if (names.size() < MAX_NAMES || names.contains(record.name.name))
        names[record.name.name] = record;
}

void GpuProcesses::on_state(const cw_gpu_trace &record) {
    process_of(record.tgid).state = record;
}

void GpuProcesses::on_profiler(const cw_gpu_profiler &record) {
    process_of(record.tgid).profiler = record;
}

void GpuProcesses::find_exited() {
    for (auto &[tgid, process] : processes_)
        process.has_exited =
            process.has_exited || process::has_ended(static_cast<pid_t>(tgid), process.start_ticks);
}

bool GpuProcesses::any_armed() {
    find_exited();
    for (const auto &[tgid, process] : processes_)
        if (!process.has_exited && (is_tracing(process.state) || is_tracing(process.profiler)))
            return true;
    return false;
}

void GpuProcesses::append_all(source::RecordSink &sink) {
    for (const auto &[tgid, process] : processes_) {
        for (const auto &[number, name] : process.names)
            sink.append(name.header);
        if (process.state.header.length_bytes != 0)
            sink.append(process.state.header);
        if (process.profiler.header.length_bytes != 0)
            sink.append(process.profiler.header);
    }
    std::erase_if(processes_, [](const auto &entry) { return entry.second.has_exited; });
    find_exited();
}

std::vector<std::string> GpuProcesses::problems() const {
    std::vector<std::string> all;
    for (const auto &[tgid, process] : processes_) {
        const cw_gpu_state_item &state = process.state.state;
        // NCCL's profiler gives the times where CUPTI cannot.
        if (process.has_exited || is_tracing(process.profiler))
            continue;
        if (state.state != CW_GPU_YIELDED && state.state != CW_GPU_REFUSED &&
            state.state != CW_GPU_FAILED)
            continue;
        const std::string owner(state.owner, strnlen(state.owner, sizeof(state.owner)));
        all.push_back(fmt::format("process {}: its kernels are not recorded: {}{}{}{}", tgid,
                                  because(state.reason), owner.empty() ? "" : " (", owner,
                                  owner.empty() ? "" : ")"));
    }
    return all;
}

} // namespace collwire::sources
