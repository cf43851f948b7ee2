// SPDX-License-Identifier: Apache-2.0
// What an inspection shows of a rank in addition to NCCL: threads, throttling, ports.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "correlate/diagnose/diagnosis.h"

namespace collwire::diagnose {

// nullptr: not in the inspection.
[[nodiscard]] const inspect::Thread *thread_of(const Rank &rank, std::uint32_t tid);

// Its cgroup was throttled long enough to matter.
[[nodiscard]] bool is_throttled(const Rank &rank);

// The error counters that grew on its host's ports.
[[nodiscard]] std::string ports_text(const Rank &rank);

// Its threads, throttling, ports and NCCL's last warning: one sentence each.
[[nodiscard]] std::vector<std::string> evidence_of(const Rank &rank);

// A thread of its process that is in NCCL's host code at both samples, with this communicator;
// nullptr: none.
[[nodiscard]] const inspect::NcclCall *call_of(const Rank &rank);

// "ncclAllReduce"
[[nodiscard]] std::string function_text(const inspect::NcclCall &call);
// "thread 17 is in ncclAllReduce: ncclProxySaveOp < groupLaunch"
[[nodiscard]] std::string call_text(const inspect::NcclCall &call);

} // namespace collwire::diagnose
