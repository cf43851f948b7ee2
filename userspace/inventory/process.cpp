// SPDX-License-Identifier: Apache-2.0
#include "userspace/inventory/process.h"

#include <algorithm>
#include <array>

#include <unistd.h>

#include "base/set_text.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "userspace/foreign/foreign.h"
#include "userspace/inventory/command_line.h"
#include "userspace/inventory/files.h"

namespace collwire::inventory {
namespace {

constexpr std::size_t cmdline_bytes = 16UL * 1024;
constexpr std::size_t environ_bytes = 1024UL * 1024;
constexpr std::size_t cgroup_bytes = 64UL * 1024;
constexpr std::size_t mountinfo_bytes = 4UL * 1024 * 1024;
constexpr std::size_t status_bytes = 64UL * 1024; // the list of groups alone can be long
constexpr std::uint64_t max_pid = 4194304;        // PID_MAX_LIMIT of linux/threads.h

std::string process_directory(const std::string &root, std::uint32_t pid) {
    return root + "/proc/" + std::to_string(pid);
}

std::optional<ProcessStat> read_stat(const std::string &directory) {
    const auto text = read_file(directory + "/stat", small_file_bytes);
    return text ? parse_process_stat(*text) : std::nullopt;
}

// Of the machine itself: a file of a process may wait for what the process waits for.
Result<std::string> read_of(const std::string &root, std::uint32_t pid, const std::string &path,
                            std::size_t limit_bytes) {
    return root.empty() ? foreign::read_file(static_cast<pid_t>(pid), path, limit_bytes)
                        : read_file(path, limit_bytes);
}

void read_program(const std::string &root, const std::string &directory,
                  const ProcessOptions &options, cw_process &process) {
    if (const auto executable = read_link(directory + "/exe"))
        set_text(process.executable, *executable);
    else if (root.empty() || !exists(directory + "/exe"))
        process.flags |= CW_PROCESS_PARTIAL;
    const auto cmdline = read_of(root, process.pid, directory + "/cmdline", cmdline_bytes);
    if (!cmdline) {
        process.flags |= CW_PROCESS_PARTIAL;
        return;
    }
    const Program program = program_of(*cmdline);
    set_text(process.argv0, program.argv0);
    set_text(process.script, program.script);
    if (options.full_cmdline)
        set_text(process.cmdline, joined_command_line(*cmdline, sizeof(process.cmdline) - 1));
}

CgroupFacts read_mounts(const std::string &directory, MountFacts *known) {
    const auto space = known == nullptr ? std::nullopt : read_link(directory + "/ns/mnt");
    if (space)
        if (const auto found = known->find(*space); found != known->end())
            return found->second;
    CgroupFacts facts;
    if (const auto mounts = read_file(directory + "/mountinfo", mountinfo_bytes))
        add_from_mounts(*mounts, facts);
    if (space)
        known->emplace(*space, facts);
    return facts;
}

bool inside(const CpuRange &cpus, const std::vector<CpuRange> &node) {
    return std::any_of(node.begin(), node.end(), [&](const CpuRange &range) {
        return cpus.first >= range.first && cpus.last <= range.last;
    });
}

} // namespace

std::uint64_t clock_tick_ns() {
    static const long ticks_per_second = sysconf(_SC_CLK_TCK);
    return 1'000'000'000ULL /
           static_cast<std::uint64_t>(ticks_per_second > 0 ? ticks_per_second : 100);
}

bool same_start(std::uint64_t start_boottime_ns, std::uint64_t rounded_ns) {
    return start_boottime_ns / clock_tick_ns() == rounded_ns / clock_tick_ns();
}

std::optional<std::uint64_t> process_start_ns(const std::string &root, std::uint32_t pid) {
    const auto stat = read_stat(process_directory(root, pid));
    return stat ? std::optional(stat->start_ticks * clock_tick_ns()) : std::nullopt;
}

std::optional<std::uint32_t> parent_pid(const std::string &root, std::uint32_t pid) {
    const auto stat = read_stat(process_directory(root, pid));
    return stat ? std::optional(stat->parent_pid) : std::nullopt;
}

std::uint64_t socket_inode(std::uint32_t pid, std::uint32_t fd) {
    constexpr std::string_view BEGIN = "socket:[";
    const std::string path = process_directory("", pid) + "/fd/" + std::to_string(fd);
    std::array<char, 64> target{};
    const ssize_t size = readlink(path.c_str(), target.data(), target.size());
    std::string_view text(target.data(), size < 0 ? 0 : static_cast<std::size_t>(size));
    if (!text.starts_with(BEGIN) || !text.ends_with(']'))
        return 0;
    text.remove_prefix(BEGIN.size());
    text.remove_suffix(1);
    return parse_number(text).value_or(0);
}

CgroupFacts read_job(const std::string &root, std::uint32_t pid, bool *complete,
                     MountFacts *known) {
    const std::string directory = process_directory(root, pid);
    bool all = true;
    CgroupFacts job;
    if (const auto text = read_file(directory + "/cgroup", cgroup_bytes))
        job = parse_cgroups(*text);
    else
        all = false;
    // A site whose Slurm does not manage cgroups still sets the job's variables.
    if (job.slurm_job.empty()) {
        if (const auto environ = read_of(root, pid, directory + "/environ", environ_bytes)) {
            SlurmEnvironment slurm = slurm_environment(*environ);
            job.slurm_job = std::move(slurm.job);
            job.slurm_step = std::move(slurm.step);
        } else {
            all = false;
        }
    }
    if (job.container_id.empty() || job.pod_uid.empty()) {
        const CgroupFacts mounted = read_mounts(directory, known);
        if (job.container_id.empty())
            job.container_id = mounted.container_id;
        if (job.pod_uid.empty())
            job.pod_uid = mounted.pod_uid;
    }
    if (complete != nullptr && !all)
        *complete = false;
    return job;
}

Result<cw_process> read_process(const std::string &root, std::uint32_t pid,
                                const ProcessOptions &options) {
    const std::string directory = process_directory(root, pid);
    const auto stat = read_stat(directory);
    if (!stat)
        return error(ErrorKind::Failed,
                     "process " + std::to_string(pid) + ": exited, or hidden by /proc");
    cw_process process{};
    process.header = {sizeof(process), CW_KIND_PROCESS, CW_CPU_USERSPACE, 0};
    process.pid = pid;
    process.parent_pid = stat->parent_pid;
    process.start_boottime_ns = stat->start_ticks * clock_tick_ns();
    process.flags = CW_PROCESS_START_ROUNDED;
    process.numa_node = -1;
    set_text(process.comm, stat->comm);
    if (const auto text = read_file(directory + "/status", status_bytes)) {
        const ProcessStatus status = parse_process_status(*text);
        process.uid = status.uid;
        process.namespace_pid = status.namespace_pid;
        process.numa_node = numa_node_of_cpus(root, status.cpus_allowed_list);
    } else {
        process.flags |= CW_PROCESS_PARTIAL;
    }
    read_program(root, directory, options, process);
    bool complete = true;
    const CgroupFacts job = read_job(root, pid, &complete);
    if (!complete)
        process.flags |= CW_PROCESS_PARTIAL;
    set_text(process.cgroup, job.path);
    set_text(process.slurm_job, job.slurm_job);
    set_text(process.slurm_step, job.slurm_step);
    set_text(process.pod_uid, job.pod_uid);
    set_text(process.container_id, job.container_id);
    const auto again = read_stat(directory);
    if (!again || again->start_ticks != stat->start_ticks)
        return error(ErrorKind::Failed,
                     "process " + std::to_string(pid) + ": exited while it was read");
    return process;
}

std::optional<ProcessStat> parse_process_stat(std::string_view text) {
    const std::size_t open = text.find('(');
    const std::size_t close = text.rfind(')');
    if (open == std::string_view::npos || close == std::string_view::npos || close < open ||
        text.size() < close + 2)
        return std::nullopt;
    ProcessStat stat;
    stat.comm = text.substr(open + 1, close - open - 1);
    const auto fields = split(trim(text.substr(close + 2)), ' '); // from field 3, the state
    constexpr std::size_t parent_field = 4 - 3;
    constexpr std::size_t start_field = 22 - 3;
    if (fields.size() <= start_field)
        return std::nullopt;
    const auto parent = parse_number(fields[parent_field]);
    const auto start = parse_number(fields[start_field]);
    if (!parent || *parent > max_pid || !start || *start > UINT64_MAX / clock_tick_ns())
        return std::nullopt;
    stat.parent_pid = static_cast<std::uint32_t>(*parent);
    stat.start_ticks = *start;
    return stat;
}

ProcessStatus parse_process_status(std::string_view text) {
    ProcessStatus status;
    for (const std::string_view line : split(text, '\n')) {
        const std::size_t colon = line.find(':');
        if (colon == std::string_view::npos)
            continue;
        const std::string_view key = line.substr(0, colon);
        const std::string_view value = trim(line.substr(colon + 1));
        if (key == "Uid") {
            const auto uid = parse_number(value.substr(0, value.find('\t')));
            if (uid && *uid <= UINT32_MAX)
                status.uid = static_cast<std::uint32_t>(*uid);
        } else if (key == "NSpid") {
            const std::size_t last = value.rfind('\t'); // outermost namespace first
            const auto pid =
                parse_number(last == std::string_view::npos ? value : value.substr(last + 1));
            if (pid && *pid <= max_pid)
                status.namespace_pid = static_cast<std::uint32_t>(*pid);
        } else if (key == "Cpus_allowed_list") {
            status.cpus_allowed_list = value;
        }
    }
    return status;
}

std::vector<CpuRange> parse_cpu_list(std::string_view text) {
    std::vector<CpuRange> ranges;
    for (const std::string_view part : split(trim(text), ',')) {
        const std::size_t dash = part.find('-');
        const auto first = parse_number(part.substr(0, dash));
        const auto last =
            dash == std::string_view::npos ? first : parse_number(part.substr(dash + 1));
        if (!first || !last || *first > *last || *last > UINT32_MAX)
            return {};
        ranges.push_back({static_cast<std::uint32_t>(*first), static_cast<std::uint32_t>(*last)});
    }
    return ranges;
}

std::int32_t numa_node_of_cpus(const std::string &root, std::string_view cpu_list) {
    const auto cpus = parse_cpu_list(cpu_list);
    if (cpus.empty())
        return -1;
    const std::string nodes = root + "/sys/devices/system/node";
    for (const std::string &name : list_directory(nodes)) {
        const auto number = name.starts_with("node")
                                ? parse_number(std::string_view(name).substr(4))
                                : std::nullopt;
        if (!number || *number > INT32_MAX)
            continue;
        const auto node =
            parse_cpu_list(read_line(concatenated(nodes, "/", name, "/cpulist")).value_or(""));
        if (std::all_of(cpus.begin(), cpus.end(),
                        [&](const CpuRange &range) { return inside(range, node); }))
            return static_cast<std::int32_t>(*number);
    }
    return -1;
}

} // namespace collwire::inventory
