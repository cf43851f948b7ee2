// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace collwire::record {

enum class Recording {
    CountersOnly, // of devices and ports: needs no privilege
    QueuePairs,
    NcclToo, // NCCL's sockets are something without any RDMA device
};

// Whether recording can work on this machine at all. NotPermitted: a capability, a pid namespace or
// a lockdown is in the way; Unsupported: the kernel lacks BTF, or there is no RDMA device. What is
// not permitted comes first, the rest is known for sure only afterwards. The message, one line,
// says what is missing, what to do, and what works without it. `root` goes before every path;
// empty: the machine itself.
Result<void> check_machine(Recording what, const std::string &root = {});

// A process id as typed. Usage: it is none, nothing runs under it, or it is that of a thread, which
// no queue pair has. `root` as above.
Result<std::uint32_t> check_process(const std::string &text, const std::string &root = {});

} // namespace collwire::record
