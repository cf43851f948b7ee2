// SPDX-License-Identifier: Apache-2.0
// Memory of NCCL that the BPF programs could not read: a program takes no page faults, so what is
// not present at that moment fails. The recorder reads it, in its own time: then the kernel fetches
// it, and the next launch finds it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_connection_records.h"
#include "userspace/sources/nccl/comm_registry.h"
#include "userspace/sources/nccl/libraries.h"

namespace collwire::sources {

class UnreadMemory {
public:
    using OnConnection = std::function<void(const CommAddress &, const cw_nccl_connection &)>;

    UnreadMemory(const NcclLibraries &libraries, const CommRegistry &comms,
                 OnConnection on_connection)
        : libraries_(libraries), comms_(comms), on_connection_(std::move(on_connection)) {}

    // Reads what the first launch of each known communicator will read.
    void fetch_all() const;
    // The programs emitted this connection, and could not read all of it.
    void add(const CommAddress &address, const cw_nccl_connection &connection);
    // Once each interval: reads what failed since, of communicators and connections.
    void poll();
    // A communicator has ended, or all of a process.
    void remove(const CommAddress &address);
    void remove_all(std::uint32_t tgid);
    // Communicators whose launches are not read, a clause each.
    [[nodiscard]] std::vector<std::string> problems() const;

private:
    struct Wanted {
        CommAddress comm;
        std::uint64_t connection = 0; // address
        unsigned tries = 0;
    };

    void poll(const cw_nccl_comm &comm);
    // False: try again.
    bool read(const Wanted &wanted);

    const NcclLibraries &libraries_;
    const CommRegistry &comms_;
    OnConnection on_connection_;
    std::vector<Wanted> wanted_;
    std::map<CommAddress, std::string> unread_; // communicators, and why
    std::vector<std::string> ended_;            // of communicators that ended so
};

} // namespace collwire::sources
