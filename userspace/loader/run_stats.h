// SPDX-License-Identifier: Apache-2.0
// The kernel's own count of the runs of BPF programs and of the time that they take.
#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"

namespace collwire::loader {

struct RunStats {
    std::uint32_t program_id = 0; // not used again
    std::uint64_t runs = 0;       // with those that the kernel skipped, which took the trap as well
    std::uint64_t run_time_ns = 0;
};

// Makes the kernel count for as long as it lives, for all programs of the machine: two clock
// readings for each run, which are part of the time.
class RunStatsSwitch {
public:
    // NotPermitted, Unsupported: the kernel does not count here.
    [[nodiscard]] static Result<RunStatsSwitch> turn_on();
    RunStatsSwitch(RunStatsSwitch &&other) noexcept;
    RunStatsSwitch &operator=(RunStatsSwitch &&) = delete;
    ~RunStatsSwitch();

private:
    explicit RunStatsSwitch(int fd) : fd_(fd) {}
    int fd_ = -1; // -1: somebody else has turned it on
};

// Since the program was loaded. Empty: there is no such program.
[[nodiscard]] std::optional<RunStats> run_stats_of(int program_fd);

} // namespace collwire::loader
