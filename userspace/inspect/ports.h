// SPDX-License-Identifier: Apache-2.0
// The ports of this node's RDMA devices, and what their counters did between two looks.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "correlate/inspect/inspection.h"
#include "userspace/inventory/counters.h"

namespace collwire::inspect {

class PortCounters {
public:
    // Opens the counters, and reads them for the first time.
    explicit PortCounters(const std::string &root);
    // Reads them again.
    std::vector<Port> changes();

private:
    struct Opened {
        Port port;
        std::vector<inventory::CounterGroup> groups;
        std::map<std::uint32_t, std::uint64_t> first; // by the number of a counter
    };
    std::vector<Opened> ports_;
};

} // namespace collwire::inspect
