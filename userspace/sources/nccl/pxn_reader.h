// SPDX-License-Identifier: Apache-2.0
// Connections of operations that NCCL gives to another rank's proxy (PXN). They lie in that rank's
// process, which has no operation on them, so the BPF programs see none of them there. Their memory
// is read when the first operation on them is recorded.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "collwire/nccl_connection_records.h"
#include "collwire/nccl_launch_records.h"
#include "userspace/sources/nccl/comm_registry.h"

namespace collwire::sources {

class PxnReader {
public:
    // Adds a connection of this communicator to the registry.
    using OnConnection = std::function<void(const CommAddress &, const cw_nccl_connection &)>;

    PxnReader(const NcclLibraries &libraries, CommRegistry &comms, OnConnection on_connection)
        : libraries_(libraries), comms_(comms), on_connection_(std::move(on_connection)) {}

    void on_operations(const cw_nccl_shape_ops &record);
    // Tries the connections again that were not found.
    void poll();

private:
    struct Wanted {
        CommAddress comm;
        std::uint64_t connection = 0; // address
        std::uint32_t proxy_index = 0;
        unsigned tries = 0;
    };

    // False: try again.
    bool read(const Wanted &wanted);

    const NcclLibraries &libraries_;
    CommRegistry &comms_;
    OnConnection on_connection_;
    std::vector<Wanted> wanted_;
};

} // namespace collwire::sources
