// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>

#include "userspace/process/process_view.h"

namespace collwire::inspect {

// The threads of a process: this pid namespace's number of each by the number that it has itself.
using ThreadNumbers = std::map<std::uint32_t, std::uint32_t>;
ThreadNumbers thread_numbers(pid_t pid);

// The number of a thread of which the process keeps a pthread_t (glibc): the first word in there
// that is the number of one of its threads. 0: none is.
std::uint32_t thread_number(const process::ProcessView &process, const ThreadNumbers &threads,
                            std::uint64_t pthread);

} // namespace collwire::inspect
