// SPDX-License-Identifier: Apache-2.0
// Collects the queue pairs of NCCL's connections, by process.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "collwire/nccl_connection_records.h"
#include "userspace/source/nccl_queue_pairs.h"

namespace collwire::sources {

class NcclQpRegistry {
public:
    // `steps_at`: address of the connection's count of steps; 0: not known. `is_lasting`: it may
    // outlive its communicator. `is_derived`: the bytes of its operations are known exactly.
    void add(const cw_nccl_connection &connection, std::uint64_t steps_at, bool is_lasting,
             bool is_derived);
    void forget(std::uint32_t tgid) { processes_.erase(tgid); }
    void forget(std::uint32_t tgid, std::uint64_t comm);
    // Null: no connection of the process is known. Valid until the registry changes.
    [[nodiscard]] const source::NcclQueuePairs *of(std::uint32_t tgid) const;

private:
    struct Connection {
        std::uint64_t net_comm = 0;
        std::uint64_t comm = 0; // with which it ends; 0: none
        std::int32_t rank = -1, peer = -1;
        std::uint64_t steps_at = 0;
        bool is_send = false;
        bool is_derived = false;
        std::set<std::uint64_t> data{}, others{}; // addresses of queue pairs
    };

    struct Process {
        std::map<std::uint64_t, Connection> connections; // by address
        // Asked for each second, and there may be thousands.
        mutable std::optional<source::NcclQueuePairs> answer;
    };
    [[nodiscard]] static source::NcclQueuePairs answer_of(const Process &process);

    std::map<std::uint32_t, Process> processes_;
};

} // namespace collwire::sources
