// SPDX-License-Identifier: Apache-2.0
// Which thread of a process may be borrowed: one that sleeps in a system call that continues
// exactly, and that no C library makes while it holds a lock.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "base/result.h"

namespace collwire::inject {

struct SystemCall {
    std::uint64_t number = 0;
    std::array<std::uint64_t, 6> arguments{};
    friend bool operator==(const SystemCall &, const SystemCall &) = default;
};

// /proc/PID/task/TID/syscall, proc(5). Empty: the thread runs, or is in no system call.
std::optional<SystemCall> parse_system_call(std::string_view text);

// Empty: the thread may be borrowed. Otherwise why not, one clause. Of a read, the file behind the
// descriptor is judged by may_borrow_reader().
std::string_view reason_not_to_borrow(const SystemCall &call);
// By the link in /proc/PID/fd: a pipe, an eventfd or a terminal.
bool may_borrow_reader(std::string_view link);
std::string_view name_of_system_call(std::uint64_t number);

struct Sleeper {
    pid_t tid = 0;
    SystemCall call;
    std::string name;
    unsigned rank = 0; // smaller is better: not the main thread, not one of NCCL
};

// The threads that sleep in the same call at two looks 20 ms apart and did not wake up between
// them; the best first. Failed: no thread does, with the calls that were seen.
Result<std::vector<Sleeper>> find_sleepers(pid_t pid);

} // namespace collwire::inject
