// SPDX-License-Identifier: Apache-2.0
#include "correlate/report/text_gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>

#include "collwire/gpu_records.h"
#include "correlate/capture/gpu_names.h"
#include "correlate/nccl/describe.h"
#include "correlate/nccl/gpu_phases.h"
#include "correlate/report/table.h"
#include "correlate/report/text_writer.h"
#include "correlate/report/units.h"

namespace collwire::report {

using model::Index;
using model::Model;

namespace {

std::string percentile_text(const std::vector<nccl::PhaseSample> &sorted, unsigned percent) {
    if (sorted.empty())
        return "n/a";
    const nccl::PhaseSample sample = nccl::percentile(sorted, percent);
    if (!sample.is_within_error())
        return short_duration(sample.value_ns);
    return sample.error_ns >= gpu::NO_BOUND_NS
               ? "n/a"
               : "<= " + short_duration(sample.value_ns + sample.error_ns);
}

class GpuTextWriter : private TextWriter {
public:
    GpuTextWriter(const Model &model, const TextOptions &options)
        : TextWriter(options), model_(model), nccl_(model.nccl) {}

    std::string run() {
        if (!nccl_.gpu.is_recorded())
            return {};
        title("NCCL's kernels on GPUs");
        coverage();
        guests();
        time_of_gpus();
        operations();
        return std::move(text_);
    }

private:
    void coverage() {
        nccl::GpuTrace all;
        std::uint64_t dropped = 0, unknown = 0, not_summed = 0, seen = 0, orphans = 0, lost = 0;
        std::uint64_t by_profiler = 0;
        for (const nccl::GpuTrace &trace : nccl_.gpu.traces) {
            all.kernels += trace.kernels;
            all.exact += trace.exact;
            all.by_time += trace.by_time;
            all.contradicted += trace.contradicted;
            all.without_launch += trace.without_launch;
            all.traced_launches += trace.traced_launches;
            all.queued += trace.queued;
            all.running += trace.running;
            all.odd_times += trace.odd_times;
            all.out_of_step += trace.out_of_step;
            if (trace.source == CW_GPU_SOURCE_PROFILER)
                by_profiler += trace.kernels;
        }
        for (const nccl::GpuGuest &guest : nccl_.gpu.guests) {
            dropped += guest.last.dropped;
            not_summed += guest.last.not_summed;
            seen += guest.seen_kernels;
            orphans += guest.orphans;
            lost += guest.profiler_last.dropped;
            for (const auto &[name, n] : nccl_.gathered.gpu_processes[guest.process].unknown_names)
                unknown += n;
        }
        const std::uint64_t joined = all.exact + all.by_time;
        wrapped(fmt::format("  coverage: {} of {} launches made while the GPU was traced have "
                            "their kernel ({}): {} exact, {} by time",
                            grouped(joined), grouped(all.traced_launches),
                            share(joined, all.traced_launches), grouped(all.exact),
                            grouped(all.by_time)),
                "    ", "");
        if (by_profiler != 0)
            wrapped(
                fmt::format("  times: {} from NCCL's profiler, the first channel's start to the "
                            "last one's end; {} from CUPTI",
                            grouped(by_profiler), grouped(all.kernels - by_profiler)),
                "    ", "");
        std::string rest;
        const auto add = [&rest](std::uint64_t n, std::string_view what) {
            if (n != 0)
                rest += fmt::format("{}{} {}", rest.empty() ? "" : "; ", grouped(n), what);
        };
        add(all.without_launch, "kernel(s) without a recorded launch");
        add(all.contradicted, "kernel(s) that contradict the launch at their place");
        add(all.queued, "kernel(s) had not begun when the trace ended: no times");
        add(all.running, "kernel(s) still ran then");
        add(all.odd_times, "kernel(s) whose end is before their start: the GPU's times");
        add(all.out_of_step,
            "kernel(s) of communicators whose marks NCCL's profiler counts wrongly: no times");
        add(seen, "kernel(s) with times of NCCL's proxy thread, not of the GPU (NCCL 2.26)");
        add(orphans, "channel(s) without a recorded operation");
        add(lost, "channel(s) lost by the guest library");
        add(unknown, "kernel(s) of NCCL with an unknown name");
        add(dropped, "kernel record(s) of any kind lost by CUPTI");
        add(not_summed, "kernel(s) of any kind in no window: the times of GPUs lack them");
        if (!rest.empty())
            wrapped("  " + rest, "    ", "33");
    }

    // Processes that were not traced to the end, with the reason.
    void guests() {
        std::map<std::string, std::uint64_t> processes;
        for (const nccl::GpuGuest &guest : nccl_.gpu.guests) {
            // NCCL's profiler took its place.
            if (!guest.profiler_spans.empty() &&
                guest.profiler_spans.back().disarming_begin_ns == UINT64_MAX)
                continue;
            const std::uint32_t state = guest.last.state; // a capture may have any
            if (state == CW_GPU_YIELDED || state == CW_GPU_REFUSED || state == CW_GPU_FAILED ||
                state == CW_GPU_NO_CUDA)
                ++processes[fmt::format("{}: {}{}", capture::gpu_state_name(guest.last.state),
                                        capture::gpu_reason_name(guest.last.reason),
                                        guest.last.owner[0] == '\0'
                                            ? ""
                                            : fmt::format(" ({:.64s})", guest.last.owner))];
        }
        for (const auto &[what, n] : processes)
            wrapped(printable(fmt::format("  not traced at the end: {} process(es), {}", n, what)),
                    "    ", "33");
    }

    void time_of_gpus() {
        std::uint64_t traced_ns = 0, busy_ns = 0, nccl_ns = 0, overlap_ns = 0;
        for (const nccl::GpuTrace &trace : nccl_.gpu.traces) {
            if (trace.windows == 0)
                continue;
            traced_ns += trace.traced_ns;
            busy_ns += trace.busy_ns;
            nccl_ns += trace.nccl_ns;
            overlap_ns += trace.overlap_ns;
        }
        if (traced_ns == 0)
            return;
        const std::uint64_t exposed_ns = nccl_ns - std::min(nccl_ns, overlap_ns);
        const std::uint64_t used_ns = std::min(busy_ns + exposed_ns, traced_ns);
        wrapped(fmt::format("  time of the traced GPUs, {} together: computing {}, of that {} with "
                            "NCCL at the same time; NCCL alone {}; idle {}",
                            duration(traced_ns), share(busy_ns, traced_ns),
                            share(overlap_ns, traced_ns), share(exposed_ns, traced_ns),
                            share(traced_ns - used_ns, traced_ns)),
                "    ", "");
    }

    void operations() {
        const std::map<nccl::GpuKind, nccl::GpuPhases> all = nccl::gpu_phases(model_);
        if (all.empty())
            return;
        std::vector<const std::pair<const nccl::GpuKind, nccl::GpuPhases> *> order;
        order.reserve(all.size());
        for (const auto &kind : all)
            order.push_back(&kind);
        std::stable_sort(order.begin(), order.end(), [](const auto *a, const auto *b) {
            return a->second.operations > b->second.operations;
        });
        Table table({{"comm", Align::Right},
                     {"operation"},
                     {"size", Align::Right},
                     {"algorithm", Align::Left, false, 2},
                     {"ops", Align::Right},
                     {"queued p50", Align::Right},
                     {"p95", Align::Right, false, 3},
                     {"waiting p50", Align::Right},
                     {"p95", Align::Right, false, 4},
                     {"moving p50", Align::Right},
                     {"p95", Align::Right, false, 5},
                     {"last rank", Align::Left, false, 1}});
        std::size_t shown = 0;
        for (const auto *row : order) {
            if (shown == options_.rows)
                break;
            ++shown;
            const auto &[kind, phases] = *row;
            table.add({std::to_string(kind.comm), nccl::func_text(kind.func),
                       human_bytes(kind.size_bytes),
                       fmt::format("{} {}", nccl::algorithm_text(kind.algorithm),
                                   nccl::protocol_text(kind.protocol)),
                       grouped(phases.operations), percentile_text(phases.late_gpu, 50),
                       percentile_text(phases.late_gpu, 95), percentile_text(phases.waiting, 50),
                       percentile_text(phases.waiting, 95), percentile_text(phases.moving, 50),
                       percentile_text(phases.moving, 95), last_text(phases)});
        }
        text_ += table.text(width_);
        more(order.size(), shown, "kinds of operations");
        wrapped("  queued: launch to kernel start; waiting: until the last rank's kernel started; "
                "moving: from then to the kernel's end",
                "  ", "");
    }

    static std::string last_text(const nccl::GpuPhases &phases) {
        if (phases.last_ranks.empty())
            return phases.last_within_error == 0 ? "n/a" : "within clock error";
        const auto most =
            std::max_element(phases.last_ranks.begin(), phases.last_ranks.end(),
                             [](const auto &a, const auto &b) { return a.second < b.second; });
        return fmt::format("{} ({})", most->first, share(most->second, phases.whole));
    }

    const Model &model_;
    const nccl::NcclFacts &nccl_;
};

} // namespace

std::string gpu_text(const Model &model, const TextOptions &options) {
    return GpuTextWriter(model, options).run();
}

} // namespace collwire::report
