// SPDX-License-Identifier: Apache-2.0
#include "gpu.skel.h"

#include "userspace/sources/gpu_source.h"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <utility>

#include <fmt/format.h>

#include "base/clock.h"
#include "collwire/gpu_records.h"
#include "collwire/node_records.h"
#include "collwire/record_kinds.h"

namespace collwire::sources {
namespace {

GpuSchedule::Now now() {
    return {clock_ns(CLOCK_REALTIME), monotonic_ns()};
}

template <typename T> T copy_of(const cw_header &header) {
    T record{};
    std::memcpy(&record, &header, std::min<std::size_t>(sizeof(T), header.length_bytes));
    return record;
}

} // namespace

GpuSource::GpuSource(const loader::SharedMaps &maps, GpuOptions options)
    : options_(std::move(options)), maps_(maps), skeleton_("GPU hand-over probes"),
      libraries_(options_.pids), schedule_(options_.times) {}

GpuSource::~GpuSource() = default;

Result<void> GpuSource::prepare() {
    auto loaded = skeleton_.open();
    if (loaded) {
        skeleton_->rodata->filter_by_tgid = !options_.pids.empty();
        loaded = skeleton_.load(maps_);
    }
    if (!loaded) {
        unavailable_ = std::move(loaded).failure().message;
        return {};
    }
    for (const std::string &path : options_.installed)
        (void)libraries_.add_installed(path);
    for (const pid_t pid : process::all_processes())
        (void)libraries_.scan(pid);
    return {};
}

std::vector<std::string> GpuSource::notes() const {
    std::vector<std::string> lines;
    const auto users = libraries_.users();
    lines.reserve(users.size() + 1);
    for (const GpuLibraries::User &user : users)
        lines.push_back(fmt::format("process {} has {} loaded", user.pid, CW_GPU_LIBRARY));
    lines.push_back(fmt::format(
        "{} process(es) have it loaded. While the trace is on, each takes up to {} MiB of host "
        "memory for buffers; GPU memory: not measured",
        users.size(), CW_GPU_BUFFER_BYTES >> 20));
    return lines;
}

Result<void> GpuSource::attach() {
    if (!skeleton_.is_loaded())
        return {};
    libraries_.attach({skeleton_->progs.gpu_batch, skeleton_->progs.gpu_arm});
    // Between prepare and now others may have loaded it.
    for (const pid_t pid : process::all_processes())
        (void)libraries_.scan(pid);
    libraries_.written(); // with what the recorder writes of every source next
    return {};
}

void GpuSource::begin() {
    has_begun_ = true;
    schedule_.begin(now());
    follow_schedule();
}

void GpuSource::follow_schedule() {
    if (!has_begun_ || is_finishing_ || !skeleton_.is_loaded())
        return;
    const bool wanted = schedule_.wants_trace(now());
    if (wanted && !libraries_.is_armed())
        libraries_.arm();
    else if (!wanted && libraries_.is_armed())
        libraries_.disarm();
}

std::uint64_t GpuSource::due_ns() const {
    if (!has_begun_ || is_finishing_)
        return 0;
    const auto at = now();
    const auto until_ns = schedule_.until_change_ns(at);
    return until_ns ? at.monotonic_ns + *until_ns : 0;
}

void GpuSource::on_request() {
    schedule_.trigger(now());
    follow_schedule();
}

std::vector<source::SourceState> GpuSource::states() const {
    if (!unavailable_.empty())
        return {{CW_SOURCE_UNAVAILABLE, unavailable_}};
    auto problems = libraries_.problems();
    const auto others = processes_.problems();
    problems.insert(problems.end(), others.begin(), others.end());
    if (problems.empty() && libraries_.n_usable() == 0)
        problems.push_back(
            fmt::format("no process has {} loaded: no kernels of GPUs are recorded. Fix: start "
                        "the job with `collwire run -- CMD`",
                        CW_GPU_LIBRARY));
    if (problems.empty())
        return {{CW_SOURCE_ON, {}}};
    std::string reason = problems.front();
    if (problems.size() > 1)
        reason += fmt::format(" (and {} more)", problems.size() - 1);
    return {{CW_SOURCE_DEGRADED, std::move(reason)}};
}

void GpuSource::on_record(const cw_header &header) {
    switch (header.kind) {
    case CW_KIND_FILE_MAPPED:
        on_file_mapped(copy_of<cw_file_mapped>(header));
        break;
    case CW_KIND_GPU_NAME:
        processes_.on_name(copy_of<cw_gpu_name>(header));
        break;
    case CW_KIND_GPU_TRACE:
        processes_.on_state(copy_of<cw_gpu_trace>(header));
        break;
    case CW_KIND_GPU_PROFILER:
        processes_.on_profiler(copy_of<cw_gpu_profiler>(header));
        break;
    default:
        break;
    }
}

void GpuSource::on_file_mapped(const cw_file_mapped &record) {
    if (!skeleton_.is_loaded() || is_finishing_)
        return;
    // The process may not have completed its mapping yet: sample scans it again.
    const auto pid = static_cast<pid_t>(record.tgid);
    (void)libraries_.scan(pid);
    mapped_.add(pid, record.inode);
}

void GpuSource::scan_mapped() {
    const auto unread = mapped_.scan(
        [this](pid_t pid) { return libraries_.scan(pid) != GpuLibraries::Scan::Exited; });
    if (!unread.empty() && options_.rearm_mappings)
        options_.rearm_mappings(unread);
}

void GpuSource::poll_processes() {
    for (const pid_t pid : polls_.due(process::all_processes()))
        (void)libraries_.scan(pid);
}

void GpuSource::sample(source::RecordSink &sink, bool everything) {
    if (skeleton_.is_loaded() && !is_finishing_) {
        scan_mapped();
        if (!options_.has_mapping_records())
            poll_processes();
        else
            polls_.clear();
        const auto released = libraries_.release_unused(monotonic_ns());
        if (!released.empty() && options_.rearm_mappings)
            options_.rearm_mappings(released);
        follow_schedule();
    }
    if (everything) {
        libraries_.written(); // the recorder writes the probes itself
        processes_.append_all(sink);
    } else {
        libraries_.append_new(sink);
    }
}

bool GpuSource::finish() {
    if (!is_finishing_) {
        is_finishing_ = true;
        libraries_.disarm();
        // A process may have said that it traces in a record that is not read yet.
        return libraries_.n_usable() == 0;
    }
    return !processes_.any_armed();
}

std::vector<source::ProbeGroup> GpuSource::probe_groups() const {
    if (!skeleton_.is_loaded() || !libraries_.is_armed())
        return {};
    std::vector<source::ProbeProgram> programs;
    for (const bpf_program *program : {skeleton_->progs.gpu_batch, skeleton_->progs.gpu_arm})
        programs.push_back({bpf_program__fd(program), CW_PROBE_UPROBE, true, 0});
    return {{"hand-overs", source::ProbeUse::Kept, std::move(programs)}};
}

void GpuSource::detach() {
    is_finishing_ = true;
    libraries_.detach();
}

} // namespace collwire::sources
