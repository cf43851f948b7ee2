// SPDX-License-Identifier: Apache-2.0
// The node, and the offsets between its clocks.
#pragma once

#include <cstdint>
#include <string>

#include "collwire/node_records.h"

namespace collwire::inventory {

// REALTIME and BOOTTIME at header.time_ns (MONOTONIC): the tightest of a few attempts.
cw_clock read_clock();

// The node's facts; the host name is the machine's, also in a container that has the machine's pids
// and may enter its namespaces. session, segment, flags, record_start_ns and tool_version stay 0
// for the writer of the capture. An unknown text stays empty.
cw_node read_node(const std::string &root);

} // namespace collwire::inventory
