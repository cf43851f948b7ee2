// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace collwire::record {

enum class Recording {
    CountersOnly, // of devices and ports: needs no privilege
    QueuePairs,
    NcclToo, // NCCL's sockets need no RDMA device
};

// Whether recording can work on this machine. NotPermitted: a capability, a pid namespace or a
// lockdown prevents it; Unsupported: the kernel lacks BTF, or there is no RDMA device. Missing
// permissions come first, since other results are certain only with them. The message, one line,
// says what is missing, what to do, and what works without it. `root` goes before every path;
// empty: the machine itself.
Result<void> check_machine(Recording what, const std::string &root = {});

// A process id as typed. Usage: not a number, no such process, or a thread's id, which no queue
// pair has. `root` as above.
Result<std::uint32_t> check_process(const std::string &text, const std::string &root = {});

} // namespace collwire::record
