// SPDX-License-Identifier: Apache-2.0
// The processes whose guest library has handed something over: their last states, and the names of
// their kernels, which each segment of a capture repeats.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "collwire/gpu_records.h"
#include "userspace/source/source.h"

namespace collwire::sources {

class GpuProcesses {
public:
    void on_name(const cw_gpu_name &record);
    void on_state(const cw_gpu_trace &record);
    void on_profiler(const cw_gpu_profiler &record);

    // Whether a process that runs says that it traces.
    [[nodiscard]] bool any_armed();
    // Names and last states, and forgets processes that exited before the last call.
    void append_all(source::RecordSink &sink);
    // Processes that do not trace although they should: one clause each.
    [[nodiscard]] std::vector<std::string> problems() const;

private:
    struct Process {
        std::uint64_t start_ticks = 0; // 0: it had exited when its first record was read
        bool has_exited = false;
        std::map<std::uint16_t, cw_gpu_name> names;
        cw_gpu_trace state = {};
        cw_gpu_profiler profiler = {};
    };

    Process &process_of(std::uint32_t tgid);
    void find_exited();

    std::map<std::uint32_t, Process> processes_;
};

} // namespace collwire::sources
