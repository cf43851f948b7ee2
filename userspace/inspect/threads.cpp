// SPDX-License-Identifier: Apache-2.0
#include "userspace/inspect/threads.h"

#include <algorithm>
#include <array>

#include "userspace/foreign/foreign.h"
#include "userspace/inventory/files.h"

namespace collwire::inspect {
namespace {

constexpr std::size_t MAX_BUSY = 4;     // threads that are reported only for their CPU time
constexpr std::size_t MAX_HELD_UP = 16; // and for their state
constexpr std::uint64_t LEAST_RUN_NS = 1'000'000;
constexpr std::size_t STACK_BYTES = 16384;
constexpr std::size_t MAX_FRAMES = 32;
constexpr std::size_t CGROUP_BYTES = 65536;

std::string tasks_of(const std::string &root, std::uint32_t pid) {
    return inventory::concatenated(root, "/proc/", std::to_string(pid), "/task");
}

// The letter after the name, which may hold blanks and parentheses (proc(5)).
char state_of(std::string_view stat) {
    const std::size_t close = stat.rfind(')');
    return close == std::string_view::npos || stat.size() < close + 3 ? '?' : stat[close + 2];
}

std::string name_of(std::string_view stat) {
    const std::size_t open = stat.find('('), close = stat.rfind(')');
    return open == std::string_view::npos || close == std::string_view::npos || close < open
               ? std::string{}
               : std::string{stat.substr(open + 1, close - open - 1)};
}

bool is_held_up(char state) {
    return state == 'D' || state == 'T' || state == 't';
}

// Where cpu.stat of a line of /proc/PID/cgroup lies: "0::/a/b", "4:cpu,cpuacct:/a/b".
std::optional<std::pair<std::string, std::string>> cpu_cgroup_of(std::string_view line) {
    const auto parts = inventory::split(line, ':');
    if (parts.size() < 3)
        return std::nullopt;
    const std::string path{line.substr(parts[0].size() + parts[1].size() + 2)};
    if (parts[1].empty())
        return std::pair{std::string{"/sys/fs/cgroup"}, path};
    const auto controllers = inventory::split(parts[1], ',');
    if (std::ranges::find(controllers, "cpu") == controllers.end())
        return std::nullopt;
    return std::pair{inventory::concatenated("/sys/fs/cgroup/", parts[1]), path};
}

} // namespace

std::optional<ThreadTimes> parse_schedstat(std::string_view text) {
    const auto fields = inventory::split(inventory::trim(text), ' ');
    if (fields.size() < 2)
        return std::nullopt;
    const auto run = inventory::parse_number(fields[0]);
    const auto runnable = inventory::parse_number(fields[1]);
    return run && runnable ? std::optional{ThreadTimes{*run, *runnable}} : std::nullopt;
}

std::map<std::uint32_t, ThreadTimes> thread_times(const std::string &root, std::uint32_t pid) {
    std::map<std::uint32_t, ThreadTimes> times;
    const std::string tasks = tasks_of(root, pid);
    for (const std::string &name : inventory::list_directory(tasks)) {
        const auto tid = inventory::parse_number(name);
        const auto text = inventory::read_file(
            inventory::concatenated(tasks, "/", name, "/schedstat"), inventory::small_file_bytes);
        const auto parsed = text ? parse_schedstat(*text) : std::nullopt;
        if (tid && parsed)
            times.emplace(static_cast<std::uint32_t>(*tid), *parsed);
    }
    return times;
}

std::vector<std::string> parse_kernel_stack(std::string_view text) {
    std::vector<std::string> frames;
    for (std::string_view line : inventory::split(text, '\n')) {
        line = inventory::trim(line);
        // "[<0>] nfs_wait_bit_killable+0x1e/0x90 [nfs]"
        if (const std::size_t bracket = line.find("] "); bracket != std::string_view::npos)
            line.remove_prefix(bracket + 2);
        line = line.substr(0, line.find('+'));
        if (!line.empty() && frames.size() < MAX_FRAMES)
            frames.emplace_back(line);
    }
    return frames;
}

std::vector<Thread> read_threads(const std::string &root, std::uint32_t pid,
                                 const std::map<std::uint32_t, std::string> &roles,
                                 const std::map<std::uint32_t, ThreadTimes> &before,
                                 std::uint32_t &n_threads) {
    const std::string tasks = tasks_of(root, pid);
    std::vector<Thread> named, held_up, busy;
    n_threads = 0;
    for (const std::string &entry : inventory::list_directory(tasks)) {
        const auto tid = inventory::parse_number(entry);
        const std::string directory = inventory::concatenated(tasks, "/", entry);
        const auto stat = inventory::read_file(directory + "/stat", inventory::small_file_bytes);
        if (!tid || !stat)
            continue;
        ++n_threads;
        Thread thread;
        thread.tid = static_cast<std::uint32_t>(*tid);
        thread.name = name_of(*stat);
        thread.state = state_of(*stat);
        const auto role = roles.find(thread.tid);
        thread.role = thread.tid == pid ? "main" : role != roles.end() ? role->second : "";
        const auto text =
            inventory::read_file(directory + "/schedstat", inventory::small_file_bytes);
        const auto now = parse_schedstat(text ? std::string_view{*text} : std::string_view{});
        const auto then = before.find(thread.tid);
        if (now && then != before.end() && now->run_ns >= then->second.run_ns &&
            now->runnable_ns >= then->second.runnable_ns) {
            thread.run_ns = now->run_ns - then->second.run_ns;
            thread.runnable_ns = now->runnable_ns - then->second.runnable_ns;
        }
        if (!thread.role.empty())
            named.push_back(std::move(thread));
        else if (is_held_up(thread.state))
            held_up.push_back(std::move(thread));
        else if (thread.run_ns.value_or(0) >= LEAST_RUN_NS)
            busy.push_back(std::move(thread));
    }
    std::ranges::stable_sort(named, {}, [pid](const Thread &one) { return one.tid != pid; });
    std::ranges::stable_sort(busy, std::greater{},
                             [](const Thread &one) { return one.run_ns.value_or(0); });
    held_up.resize(std::min(held_up.size(), MAX_HELD_UP));
    busy.resize(std::min(busy.size(), MAX_BUSY));
    std::vector<Thread> threads = std::move(named);
    for (std::vector<Thread> *more : {&held_up, &busy})
        std::ranges::move(*more, std::back_inserter(threads));
    for (Thread &thread : threads) {
        const std::string directory =
            inventory::concatenated(tasks, "/", std::to_string(thread.tid));
        const auto channel = inventory::read_line(directory + "/wchan");
        if (channel && *channel != "0")
            thread.wait_channel = *channel;
        const std::string path = directory + "/stack";
        const auto stack = root.empty()
                               ? foreign::read_file(static_cast<pid_t>(pid), path, STACK_BYTES)
                               : inventory::read_file(path, STACK_BYTES);
        if (stack)
            thread.stack = parse_kernel_stack(*stack);
    }
    return threads;
}

std::optional<ThrottledTimes> parse_cpu_stat(std::string_view text) {
    std::optional<std::uint64_t> periods, ns;
    for (const std::string_view line : inventory::split(text, '\n')) {
        const auto words = inventory::split(inventory::trim(line), ' ');
        if (words.size() != 2)
            continue;
        const auto value = inventory::parse_number(words[1]);
        if (words[0] == "nr_throttled")
            periods = value;
        else if (words[0] == "throttled_time")
            ns = value;
        else if (words[0] == "throttled_usec" && value && *value <= UINT64_MAX / 1000)
            ns = *value * 1000;
    }
    return periods && ns ? std::optional{ThrottledTimes{*periods, *ns}} : std::nullopt;
}

std::map<std::string, ThrottledTimes> throttled_times(const std::string &root, std::uint32_t pid) {
    std::map<std::string, ThrottledTimes> times;
    const auto text = inventory::read_file(
        inventory::concatenated(root, "/proc/", std::to_string(pid), "/cgroup"), CGROUP_BYTES);
    if (!text)
        return times;
    for (const std::string_view line : inventory::split(*text, '\n')) {
        const auto cgroup = cpu_cgroup_of(line);
        if (!cgroup)
            continue;
        // A limit of any cgroup above holds, too. Beyond the root of a cgroup namespace ("/..")
        // nothing is visible; that root itself is a container's cgroup, while the machine's has no
        // limit and counts none.
        for (std::string path = cgroup->second;;) {
            const auto stat = inventory::read_file(
                inventory::concatenated(root, cgroup->first, path, "/cpu.stat"),
                inventory::small_file_bytes);
            if (const auto parsed = stat ? parse_cpu_stat(*stat) : std::nullopt)
                times.emplace(path, *parsed);
            if (path.size() <= 1)
                break;
            path.resize(std::max<std::size_t>(1, std::min(path.rfind('/'), path.size())));
        }
    }
    return times;
}

std::optional<Throttling> throttling_between(const std::map<std::string, ThrottledTimes> &before,
                                             const std::map<std::string, ThrottledTimes> &after) {
    std::optional<Throttling> most;
    for (const auto &[path, now] : after) {
        const auto then = before.find(path);
        if (then == before.end() || now.throttled_ns < then->second.throttled_ns ||
            now.periods < then->second.periods)
            continue;
        const Throttling one{path, now.periods - then->second.periods,
                             now.throttled_ns - then->second.throttled_ns};
        if (!most || one.throttled_ns > most->throttled_ns)
            most = one;
    }
    return most;
}

} // namespace collwire::inspect
