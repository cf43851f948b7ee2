// SPDX-License-Identifier: Apache-2.0
// Loads the guest library into a process that was started without it. docs/inject.md
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <sys/types.h>

#include "base/result.h"

namespace collwire::inject {

struct Injection {
    pid_t tid = 0;               // the borrowed thread
    std::string name;            // its name
    std::string call;            // the system call that it slept in
    std::uint64_t paused_ns = 0; // how long it was kept from going on
};

// Whether the process may get it: reads only. The message is whole.
Result<void> check(pid_t pid);

// Loads the library, whose file's bytes these are, and starts it. Returns when it runs. Failed:
// says what happened and whether the process is as before.
Result<Injection> inject(pid_t pid, std::span<const std::byte> library);

// The whole file of a library.
Result<std::vector<std::byte>> read_guest_library(const std::string &path);

} // namespace collwire::inject
