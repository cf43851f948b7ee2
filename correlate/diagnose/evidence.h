// SPDX-License-Identifier: Apache-2.0
// What was seen of a rank beside NCCL.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "correlate/diagnose/diagnosis.h"

namespace collwire::diagnose {

// nullptr: it was not told of.
[[nodiscard]] const inspect::Thread *thread_of(const Rank &rank, std::uint32_t tid);

// Its cgroup was, so long that it matters.
[[nodiscard]] bool is_throttled(const Rank &rank);

// The error counters of the ports of its host that moved.
[[nodiscard]] std::string ports_text(const Rank &rank);

// Its threads, throttling, ports, NCCL's last warning: a sentence each.
[[nodiscard]] std::vector<std::string> evidence_of(const Rank &rank);

} // namespace collwire::diagnose
