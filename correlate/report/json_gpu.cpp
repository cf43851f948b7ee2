// SPDX-License-Identifier: Apache-2.0
#include "correlate/report/json_gpu.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "collwire/gpu_records.h"
#include "correlate/capture/gpu_names.h"
#include "correlate/nccl/describe.h"
#include "correlate/nccl/gpu_phases.h"

namespace collwire::report {

using model::Model;

namespace {

Json trace_json(const nccl::GpuTrace &trace) {
    return {{"device", trace.device},
            {"source", capture::gpu_source_name(trace.source)},
            {"traced_ns", trace.traced_ns},
            {"kernels", trace.kernels},
            {"traced_launches", trace.traced_launches},
            {"exact", trace.exact},
            {"by_time", trace.by_time},
            {"contradicted", trace.contradicted},
            {"without_launch", trace.without_launch},
            {"without_kernel", trace.without_kernel},
            {"queued", trace.queued},
            {"running", trace.running},
            {"odd_times", trace.odd_times},
            {"out_of_step", trace.out_of_step},
            {"windows", trace.windows},
            {"busy_ns", trace.windows == 0 ? Json(nullptr) : Json(trace.busy_ns)},
            {"nccl_ns", trace.windows == 0 ? Json(nullptr) : Json(trace.nccl_ns)},
            {"overlap_ns", trace.windows == 0 ? Json(nullptr) : Json(trace.overlap_ns)},
            {"other_kernels", trace.other_kernels}};
}

Json profiler_json(const nccl::GpuGuest &guest) {
    if (!guest.has_profiler)
        return nullptr;
    const cw_gpu_profiler_item &last = guest.profiler_last;
    return {{"state", capture::gpu_state_name(last.state)},
            {"reason", capture::gpu_reason_name(last.reason)},
            {"cupti_state", capture::gpu_state_name(last.cupti_state)},
            {"api_version", number_or_null(last.api_version)},
            {"channels", last.channels},
            {"orphans", guest.orphans},
            {"dropped", last.dropped},
            {"seen_kernels", guest.seen_kernels},
            {"clock_error_ns", number_or_null(last.clock_error_ns)},
            {"clock_breaks", last.clock_breaks}};
}

Json guest_json(const Model &model, const nccl::GpuGuest &guest) {
    const nccl::NcclFacts &nccl = model.nccl;
    const nccl::GpuProcess &process = nccl.gathered.gpu_processes[guest.process];
    Json devices = Json::array();
    for (const nccl::GpuTrace &trace : nccl.gpu.traces)
        if (trace.process == guest.process)
            devices.push_back(trace_json(trace));
    Json unknown = Json::object();
    for (const auto &[name, n] : process.unknown_names)
        unknown[name] = n;
    return {{"host", model.hosts[model.sessions[process.session].host].name},
            {"pid", process.tgid},
            {"state", capture::gpu_state_name(guest.last.state)},
            {"reason", capture::gpu_reason_name(guest.last.reason)},
            {"owner", text_or_null(fmt::format("{:.64s}", guest.last.owner))},
            {"cupti_version", number_or_null(guest.last.cupti_version)},
            {"yields", guest.yields},
            {"dropped", guest.last.dropped},
            {"before_armed", guest.last.before_armed},
            {"not_summed", guest.last.not_summed},
            {"clock_error_ns", guest.last.clock_error_ns},
            {"unknown_names", std::move(unknown)},
            {"profiler", profiler_json(guest)},
            {"devices", std::move(devices)}};
}

Json sample_json(const nccl::PhaseSample &sample) {
    return sample.is_within_error() ? Json(nullptr) : Json(sample.value_ns);
}

Json samples_json(const std::vector<nccl::PhaseSample> &sorted) {
    if (sorted.empty())
        return nullptr;
    const auto within_error =
        std::count_if(sorted.begin(), sorted.end(),
                      [](const nccl::PhaseSample &sample) { return sample.is_within_error(); });
    return {{"n", sorted.size()},
            {"within_clock_error", within_error},
            {"p50_ns", sample_json(nccl::percentile(sorted, 50))},
            {"p95_ns", sample_json(nccl::percentile(sorted, 95))},
            {"max_ns", sample_json(sorted.back())}};
}

Json kind_json(const nccl::GpuKind &kind, const nccl::GpuPhases &phases) {
    Json last = Json::object();
    for (const auto &[rank, n] : phases.last_ranks)
        last[std::to_string(rank)] = n;
    return {{"comm", kind.comm},
            {"op", nccl::func_text(kind.func)},
            {"size_bytes", known(kind.size_bytes)},
            {"algorithm", text_or_null(nccl::algorithm_text(kind.algorithm))},
            {"protocol", text_or_null(nccl::protocol_text(kind.protocol))},
            {"operations", phases.operations},
            {"whole", phases.whole},
            {"rank_kernels", phases.rank_kernels},
            {"late_host", samples_json(phases.late_host)},
            {"queued", samples_json(phases.late_gpu)},
            {"waiting", samples_json(phases.waiting)},
            {"moving", samples_json(phases.moving)},
            {"last_after_first", samples_json(phases.last_behind_first)},
            {"last_ranks", std::move(last)},
            {"last_within_clock_error", phases.last_within_error}};
}

} // namespace

Json gpu_json(const Model &model) {
    if (!model.nccl.gpu.is_recorded())
        return nullptr;
    Json processes = Json::array(), kinds = Json::array();
    for (const nccl::GpuGuest &guest : model.nccl.gpu.guests)
        processes.push_back(guest_json(model, guest));
    for (const auto &[kind, phases] : nccl::gpu_phases(model))
        kinds.push_back(kind_json(kind, phases));
    return {{"processes", std::move(processes)}, {"operations", std::move(kinds)}};
}

} // namespace collwire::report
