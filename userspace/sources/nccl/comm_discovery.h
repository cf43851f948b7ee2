// SPDX-License-Identifier: Apache-2.0
// Discovers communicators that existed before their calls were recorded, and their connections, in
// the memory of their processes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include <sys/types.h>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_connection_records.h"
#include "userspace/nccl/memory/comm_copies.h"
#include "userspace/nccl/memory/live_comms.h"
#include "userspace/sources/nccl/comm_registry.h"

namespace collwire::sources {

class CommDiscovery {
public:
    // Each adds what was discovered to the registry.
    struct Discovered {
        std::function<void(const cw_nccl_comm &)> comm;
        std::function<void(const CommAddress &, const cw_nccl_connection &)> connection;
    };

    CommDiscovery(const NcclLibraries &libraries, const CommRegistry &comms, Discovered discovered)
        : libraries_(libraries), comms_(comms), discovered_(std::move(discovered)) {}

    // Reads the memory of these processes, in libraries with a greater number than `last_known`.
    void scan(const std::vector<pid_t> &pids, std::uint32_t last_known);
    // The BPF programs emitted this communicator, and the registry has it.
    void on_comm(const cw_nccl_comm &record);
    void forget(std::uint32_t tgid);
    // A process has more communicators, ranks or connections than are read.
    [[nodiscard]] bool is_cut() const { return is_cut_; }

private:
    // Connections of a communicator whose record the BPF programs emitted and the ring still has.
    struct Waiting {
        std::uint64_t generation_ns = 0; // of that record
        std::uint64_t comm_hash = 0;     // in memory
        std::int32_t rank = 0;
        std::vector<cw_nccl_connection> connections;
    };

    void scan(pid_t pid, std::uint32_t last_known, nccl::CommCopies &copies);
    // `is_there`: whether the memory has this communicator still.
    void add(const NcclLibrary &library, nccl::LiveComm &live,
             const std::function<bool()> &is_there);
    void add_connections(const NcclLibrary &library, const CommAddress &address,
                         std::vector<cw_nccl_connection> &connections);

    const NcclLibraries &libraries_;
    const CommRegistry &comms_;
    Discovered discovered_;
    std::map<CommAddress, Waiting> waiting_;
    bool is_cut_ = false;
};

} // namespace collwire::sources
