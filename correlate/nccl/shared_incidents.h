// SPDX-License-Identifier: Apache-2.0
// Incidents of several ports that began together and share a switch or a host: perhaps one cause.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "correlate/model/model.h"
#include "correlate/nccl/port_incidents.h"

namespace collwire::nccl {

struct SharedIncident {
    std::string switch_id;              // empty: its ports share a host
    Index host = NONE;                  // NONE: they share a switch
    std::vector<std::size_t> incidents; // places in the list, by time
    std::uint64_t ports = 0;            // with an incident
    std::uint64_t known_ports = 0;      // of the switch or host, in all captures
    std::uint64_t realtime_ns = 0;      // of the first one, by the clocks of the hosts
    std::uint64_t spread_ns = 0;        // to the beginning of the last one
};

// Of incidents that began within 3 s: two ports at least, and half of those that are known of the
// switch or host. An incident is part of one at most: the one with the most ports, of equal ones
// that of a switch. By time.
[[nodiscard]] std::vector<SharedIncident>
find_shared_incidents(const model::Model &model, std::span<const PortIncident> incidents);

} // namespace collwire::nccl
