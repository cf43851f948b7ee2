// SPDX-License-Identifier: Apache-2.0
// The kernels of GPUs, from the guest library in CUDA processes (bpf/gpu.bpf.c).
// docs/sources/gpu.md
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "collwire/recorder_records.h"
#include "userspace/loader/skeleton.h"
#include "userspace/process/process_polls.h"
#include "userspace/source/source.h"
#include "userspace/sources/gpu_libraries.h"
#include "userspace/sources/gpu_processes.h"
#include "userspace/sources/gpu_schedule.h"
#include "userspace/sources/mapped_processes.h"

struct gpu; // the skeleton of bpf/gpu.bpf.c

namespace collwire::sources {

struct GpuOptions {
    GpuTraceTimes times;
    std::vector<std::uint32_t> pids;    // other processes are not armed; empty: all are
    std::vector<std::string> installed; // where the library may be, before a process maps it
    // Whether CW_KIND_FILE_MAPPED records come. Without them processes are polled.
    std::function<bool()> has_mapping_records = [] { return true; };
    // Emit the next mapping of a file with one of these numbers again.
    std::function<void(const std::set<std::uint64_t> &)> rearm_mappings = {};
};

class GpuSource : public source::Source {
public:
    GpuSource(const loader::SharedMaps &maps, GpuOptions options);
    ~GpuSource() override;

    [[nodiscard]] std::string_view name() const override { return "gpu"; }
    Result<void> prepare() override;
    [[nodiscard]] std::vector<source::PlannedProbe> probe_list() const override {
        return libraries_.probe_list();
    }
    [[nodiscard]] std::vector<std::string> notes() const override;
    Result<void> attach() override;
    void begin() override;
    [[nodiscard]] std::vector<source::SourceState> states() const override;
    void on_record(const cw_header &header) override;
    [[nodiscard]] std::uint64_t due_ns() const override;
    void on_due() override { follow_schedule(); }
    void on_request() override;
    void sample(source::RecordSink &sink, bool everything) override;
    bool finish() override;
    void detach() override;
    [[nodiscard]] std::vector<source::ProbeGroup> probe_groups() const override;

private:
    void on_file_mapped(const cw_file_mapped &record);
    void follow_schedule();
    void scan_mapped();
    void poll_processes();

    GpuOptions options_;
    const loader::SharedMaps &maps_;
    loader::Skeleton<gpu> skeleton_;
    GpuLibraries libraries_;
    GpuProcesses processes_;
    GpuSchedule schedule_;
    std::string unavailable_; // why; empty: it works
    MappedProcesses mapped_;
    process::ProcessPolls polls_;
    bool has_begun_ = false;
    bool is_finishing_ = false;
};

} // namespace collwire::sources
