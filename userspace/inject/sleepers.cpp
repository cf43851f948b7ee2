// SPDX-License-Identifier: Apache-2.0
#include "userspace/inject/sleepers.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/syscall.h>

#include "userspace/inventory/files.h"

namespace collwire::inject {
namespace {

constexpr std::size_t MAX_STATUS_BYTES = 16384;
// A lock's back-off sleeps shorter than this.
constexpr std::chrono::milliseconds BETWEEN_LOOKS{20};
constexpr std::uint32_t FUTEX_FLAGS = FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME;
constexpr std::string_view ENDLESS_ONLY = "its time limit would start again";
constexpr std::string_view MASKED = "it changes the signal mask";

struct Look {
    SystemCall call;
    std::string name;
    std::string switches; // a thread that woke up has more
};

std::string_view field_of(std::string_view status, std::string_view name) {
    for (std::string_view line : inventory::split(status, '\n'))
        if (line.starts_with(name))
            return inventory::trim(line.substr(name.size()));
    return {};
}

std::map<pid_t, Look> look(pid_t pid, std::map<std::string, unsigned> &others) {
    std::map<pid_t, Look> found;
    const std::string folder = fmt::format("/proc/{}/task/", pid);
    for (const std::string &name : inventory::list_directory(folder)) {
        const auto tid = inventory::parse_number(name);
        const auto status = inventory::read_file(inventory::concatenated(folder, name, "/status"),
                                                 MAX_STATUS_BYTES);
        const auto text = inventory::read_line(inventory::concatenated(folder, name, "/syscall"));
        if (!tid || !status || !text)
            continue;
        const auto call = parse_system_call(*text);
        if (!call || !field_of(*status, "State:").starts_with('S')) {
            ++others["running, or in a wait that cannot be interrupted"];
            continue;
        }
        std::string_view reason = reason_not_to_borrow(*call);
        if (reason.empty() && call->number == SYS_read) {
            const auto link =
                inventory::read_link(fmt::format("/proc/{}/fd/{}", pid, call->arguments[0]));
            if (!link || !may_borrow_reader(*link))
                reason = "its file may not continue a read";
        }
        if (!reason.empty()) {
            ++others[fmt::format("in {}: {}", name_of_system_call(call->number), reason)];
            continue;
        }
        found.emplace(static_cast<pid_t>(*tid),
                      Look{*call, std::string{field_of(*status, "Name:")},
                           std::string{field_of(*status, "voluntary_ctxt_switches:")}});
    }
    return found;
}

} // namespace

std::optional<SystemCall> parse_system_call(std::string_view text) {
    const auto words = inventory::split(inventory::trim(text), ' ');
    SystemCall call;
    // The number, six arguments, the stack pointer, the program counter.
    if (words.size() != 9)
        return std::nullopt;
    const auto number = inventory::parse_number(words[0]);
    if (!number)
        return std::nullopt;
    call.number = *number;
    for (std::size_t i = 0; i < call.arguments.size(); ++i) {
        std::string_view word = words[i + 1];
        if (!word.starts_with("0x"))
            return std::nullopt;
        const auto value = inventory::parse_number(word.substr(2), 16);
        if (!value)
            return std::nullopt;
        call.arguments[i] = *value;
    }
    return call;
}

std::string_view reason_not_to_borrow(const SystemCall &call) {
    const auto &arguments = call.arguments;
    switch (call.number) {
    case SYS_poll: // restarts with the rest of its time, as those of restart_syscall do
    case SYS_nanosleep:
    case SYS_clock_nanosleep:
    case SYS_restart_syscall:
    case SYS_select: // the kernel has stored the rest of its time
    case SYS_read:
        return {};
    case SYS_ppoll:
        return arguments[3] == 0 ? std::string_view{} : MASKED;
    case SYS_pselect6:
        return arguments[5] == 0 ? std::string_view{} : MASKED;
    case SYS_epoll_pwait:
        if (arguments[4] != 0)
            return MASKED;
        [[fallthrough]];
    case SYS_epoll_wait: // EINTR at each stop
        return static_cast<std::int32_t>(arguments[3]) < 0 ? std::string_view{} : ENDLESS_ONLY;
    case SYS_futex:
        // Condition variables, semaphores and joins. A lock's waiter may hold another lock.
        return (static_cast<std::uint32_t>(arguments[1]) & ~FUTEX_FLAGS) == FUTEX_WAIT_BITSET
                   ? std::string_view{}
                   : "it waits for a lock";
    default:
        return "not known to continue exactly";
    }
}

bool may_borrow_reader(std::string_view link) {
    return link.starts_with("pipe:") || link == "anon_inode:[eventfd]" ||
           link.starts_with("/dev/pts/") || link == "/dev/tty";
}

std::string_view name_of_system_call(std::uint64_t number) {
    switch (number) {
    case SYS_poll:
        return "poll";
    case SYS_ppoll:
        return "ppoll";
    case SYS_select:
        return "select";
    case SYS_pselect6:
        return "pselect6";
    case SYS_epoll_wait:
        return "epoll_wait";
    case SYS_epoll_pwait:
        return "epoll_pwait";
    case SYS_nanosleep:
        return "nanosleep";
    case SYS_clock_nanosleep:
        return "clock_nanosleep";
    case SYS_restart_syscall:
        return "restart_syscall";
    case SYS_futex:
        return "futex";
    case SYS_read:
        return "read";
    default:
        return "another system call";
    }
}

Result<std::vector<Sleeper>> find_sleepers(pid_t pid) {
    std::map<std::string, unsigned> others;
    const auto before = look(pid, others);
    std::this_thread::sleep_for(BETWEEN_LOOKS);
    others.clear();
    const auto after = look(pid, others);
    std::vector<Sleeper> sleepers;
    for (const auto &[tid, now] : after) {
        const auto then = before.find(tid);
        if (then == before.end() || then->second.call != now.call ||
            then->second.switches != now.switches) {
            ++others[fmt::format("in {}: for less than {} ms", name_of_system_call(now.call.number),
                                 BETWEEN_LOOKS.count())];
            continue;
        }
        const bool is_epoll =
            now.call.number == SYS_epoll_wait || now.call.number == SYS_epoll_pwait;
        const unsigned rank = (tid == pid ? 2u : 0u) + (now.name.starts_with("NCCL") ? 4u : 0u) +
                              (is_epoll ? 1u : 0u);
        sleepers.push_back({tid, now.call, now.name, rank});
    }
    if (!sleepers.empty()) {
        std::ranges::stable_sort(sleepers, {}, &Sleeper::rank);
        return sleepers;
    }
    std::string seen;
    for (const auto &[what, n] : others)
        seen += fmt::format("{}{} {}", seen.empty() ? "" : "; ", n, what);
    return error(ErrorKind::Failed,
                 fmt::format("no thread sleeps where it can be borrowed ({}). Fix: try again, or "
                             "start the job with `collwire run -- CMD`",
                             seen));
}

} // namespace collwire::inject
