// SPDX-License-Identifier: Apache-2.0
#include "userspace/loader/run_stats.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include <bpf/bpf.h>
#include <fmt/format.h>
#include <unistd.h>

namespace collwire::loader {
namespace {

constexpr const char *ALWAYS_ON = "/proc/sys/kernel/bpf_stats_enabled"; // Linux 5.1

bool is_always_on() {
    int value = 0;
    return (std::ifstream{ALWAYS_ON} >> value) && value != 0;
}

} // namespace

Result<RunStatsSwitch> RunStatsSwitch::turn_on() {
    const int fd = bpf_enable_stats(BPF_STATS_RUN_TIME);
    if (fd >= 0 || is_always_on())
        return RunStatsSwitch{fd};
    const int failed = errno;
    const bool is_refused = failed == EPERM || failed == EACCES;
    return error(is_refused ? ErrorKind::NotPermitted : ErrorKind::Unsupported,
                 fmt::format("the kernel does not count the run time of BPF programs: {}. Fix: {}",
                             std::strerror(failed),
                             is_refused ? "CAP_SYS_ADMIN, or sysctl kernel.bpf_stats_enabled=1"
                                        : "Linux 5.8, or sysctl kernel.bpf_stats_enabled=1"));
}

RunStatsSwitch::RunStatsSwitch(RunStatsSwitch &&other) noexcept
    : fd_(std::exchange(other.fd_, -1)) {}

RunStatsSwitch::~RunStatsSwitch() {
    if (fd_ >= 0)
        close(fd_);
}

std::optional<RunStats> run_stats_of(int program_fd) {
    bpf_prog_info info = {};
    std::uint32_t length = sizeof(info);
    if (bpf_obj_get_info_by_fd(program_fd, &info, &length) != 0)
        return std::nullopt;
    return RunStats{info.id, info.run_cnt + info.recursion_misses, info.run_time_ns};
}

} // namespace collwire::loader
