// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>

#include "userspace/process/process_view.h"

namespace collwire::inspect {

// The threads of a process, by number in this pid namespace.
struct ThreadNumbers {
    std::map<std::uint64_t, std::uint32_t> by_robust_list; // its address, which the kernel keeps
    std::map<std::uint32_t, std::uint32_t> by_inner;       // by the number that it has itself
};
ThreadNumbers thread_numbers(pid_t pid);

// The number of a thread of which the process keeps a pthread_t (glibc). glibc keeps the list of a
// thread's robust locks in its struct pthread, and gives the kernel its address: so the thread is
// the one whose list is in there. Where the kernel does not say (it needs the rights of ptrace),
// the word at glibc's place of the number counts if it is the number of one of the threads. 0: not
// known.
std::uint32_t thread_number(const process::ProcessView &process, const ThreadNumbers &threads,
                            std::uint64_t pthread);

} // namespace collwire::inspect
