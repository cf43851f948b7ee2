// SPDX-License-Identifier: Apache-2.0
// The queue pairs of connections that go through a network plugin, out of the plugin's memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <unordered_set>
#include <vector>

#include "collwire/nccl_connection_records.h"
#include "correlate/inspect/inspection.h"
#include "userspace/process/process_view.h"

namespace collwire::inspect {

// By the connection's address, as far as one is known: of the queue pairs that pointers lead to
// from the plugin's objects those that are nearest to this one's. `connections` are all of the
// process that go through plugins: whose a queue pair is follows from all of them, so nothing is
// known if `until` comes first. `numbers`: of the process's queue pairs, as the kernel knows them.
// `process` was refreshed.
[[nodiscard]] std::map<std::uint64_t, std::vector<Endpoint>> plugin_endpoints(
    const process::ProcessView &process, const std::vector<const cw_nccl_connection *> &connections,
    const std::unordered_set<std::uint32_t> &numbers, std::chrono::steady_clock::time_point until);

} // namespace collwire::inspect
