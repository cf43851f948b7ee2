// SPDX-License-Identifier: Apache-2.0
// The facts of a process, from /proc/PID. `root` goes before every path ("" is the machine itself).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "collwire/node_records.h"
#include "userspace/inventory/cgroup.h"

namespace collwire::inventory {

struct ProcessOptions {
    bool full_cmdline = false; // keep the arguments: they may hold secrets
};

// The record of a thread group (record time 0, CW_PROCESS_START_ROUNDED set). Failed: the process
// has exited, or its pid was reused while it was read.
Result<cw_process> read_process(const std::string &root, std::uint32_t pid,
                                const ProcessOptions &options);

// What the mounts of a process say, by its mount namespace: the host's can have thousands.
using MountFacts = std::map<std::string, CgroupFacts>;

// Slurm job, pod and container of a process: from its cgroups, else from Slurm's variables in its
// environment and its mounts. `complete`, if given, becomes false if one of these could not be
// read. `known`, if given, spares to read the mounts of a namespace again. Empty facts: not known,
// or no such process.
CgroupFacts read_job(const std::string &root, std::uint32_t pid, bool *complete = nullptr,
                     MountFacts *known = nullptr);

// The kernel has task->start_boottime in ns; field 22 of /proc/PID/stat is the same time divided
// by the clock tick (fs/proc/array.c: nsec_to_clock_t), rounded down. So two times are the same
// start if they fall into the same tick; a pid cannot be used again that soon.
std::uint64_t clock_tick_ns();
bool same_start(std::uint64_t start_boottime_ns, std::uint64_t rounded_ns);

// When a process started in CLOCK_BOOTTIME ns rounded down to a tick; nullopt if there is none.
std::optional<std::uint64_t> process_start_ns(const std::string &root, std::uint32_t pid);

// nullopt: no such process.
std::optional<std::uint32_t> parent_pid(const std::string &root, std::uint32_t pid);

// The inode of the socket of a file descriptor. 0: not a socket, or not visible.
std::uint64_t socket_inode(std::uint32_t pid, std::uint32_t fd);

struct ProcessStat {
    std::string comm;
    std::uint32_t parent_pid = 0;
    std::uint64_t start_ticks = 0;
};
// /proc/PID/stat, proc(5). The name may hold blanks and parentheses.
std::optional<ProcessStat> parse_process_stat(std::string_view text);

struct ProcessStatus {
    std::uint32_t uid = 0;
    std::uint32_t namespace_pid = 0; // 0: not known
    std::string cpus_allowed_list;
};
// /proc/PID/status, proc(5).
ProcessStatus parse_process_status(std::string_view text);

struct CpuRange {
    std::uint32_t first;
    std::uint32_t last;
};
// "0-3,8"; empty if the text is no such list.
std::vector<CpuRange> parse_cpu_list(std::string_view text);
// The NUMA node of all of these CPUs; -1: several, or not known.
std::int32_t numa_node_of_cpus(const std::string &root, std::string_view cpu_list);

} // namespace collwire::inventory
