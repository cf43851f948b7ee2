// SPDX-License-Identifier: Apache-2.0
// The threads of a process, and whether its cgroup lets them run, from /proc and the cgroup file
// systems. `root` goes before every path ("" is the machine itself).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "correlate/inspect/inspection.h"

namespace collwire::inspect {

// /proc/PID/task/TID/schedstat: ns on a CPU, and ns in a queue for one.
struct ThreadTimes {
    std::uint64_t run_ns = 0;
    std::uint64_t runnable_ns = 0;
};
[[nodiscard]] std::optional<ThreadTimes> parse_schedstat(std::string_view text);
// Of all threads, by number. Empty: the process has ended.
[[nodiscard]] std::map<std::uint32_t, ThreadTimes> thread_times(const std::string &root,
                                                                std::uint32_t pid);

// The functions of /proc/PID/task/TID/stack, innermost first, without addresses.
[[nodiscard]] std::vector<std::string> parse_kernel_stack(std::string_view text);

// Those that matter: the main thread, those of `roles`, those that are stopped or wait in the
// kernel without hearing signals, and those that ran most since `before`. `n_threads` becomes how
// many there are.
[[nodiscard]] std::vector<Thread> read_threads(const std::string &root, std::uint32_t pid,
                                               const std::map<std::uint32_t, std::string> &roles,
                                               const std::map<std::uint32_t, ThreadTimes> &before,
                                               std::uint32_t &n_threads);

// cpu.stat of a cgroup, of version 2 (throttled_usec) or 1 (throttled_time, ns).
struct ThrottledTimes {
    std::uint64_t periods = 0;
    std::uint64_t throttled_ns = 0;
};
[[nodiscard]] std::optional<ThrottledTimes> parse_cpu_stat(std::string_view text);
// Of the cgroup of a process and of each above it, by path.
[[nodiscard]] std::map<std::string, ThrottledTimes> throttled_times(const std::string &root,
                                                                    std::uint32_t pid);
// That which was throttled longest between the two. Nothing: there is no cgroup with such counters.
[[nodiscard]] std::optional<Throttling>
throttling_between(const std::map<std::string, ThrottledTimes> &before,
                   const std::map<std::string, ThrottledTimes> &after);

} // namespace collwire::inspect
