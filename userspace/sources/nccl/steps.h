// SPDX-License-Identifier: Apache-2.0
// Samples the step counters of NCCL's connections.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "collwire/nccl_connection_records.h"
#include "collwire/nccl_layout.h"
#include "userspace/nccl/memory/step_counters.h"
#include "userspace/source/source.h"

namespace collwire::sources {

class NcclSteps {
public:
    // `is_lasting`: it may outlive its communicator. `counts_starts`: this NCCL counts an operation
    // when it starts, not when it completes.
    void add(const cw_nccl_connection &connection, const cw_nccl_layout &bpf_layout,
             bool is_lasting, bool counts_starts);
    // Where the process has that connection's count; 0: not known.
    [[nodiscard]] std::uint64_t address_of(std::uint32_t tgid, std::uint64_t connection) const;
    void forget(std::uint32_t tgid) { processes_.erase(tgid); }
    void forget(std::uint32_t tgid, std::uint64_t comm);
    // Samples all connections. append() has those that changed; all, with `everything`.
    void poll(bool everything);
    void append(source::RecordSink &sink);
    // Whether a connection has had an operation in flight and no step for that long, by the last
    // poll.
    [[nodiscard]] bool is_stalled(std::uint64_t for_ns) const;

private:
    struct Connection {
        nccl::StepCounter counter;
        std::uint64_t comm = 0;     // with which it ends; 0: none
        cw_nccl_steps sampled{};    // the last record
        std::uint64_t same_ns = 0;  // the last reading that was like it
        std::uint64_t since_ns = 0; // the first one
    };
    struct Process {
        std::uint32_t state_offset = CW_NCCL_NO_FIELD;
        std::map<std::uint64_t, Connection> connections; // by address
    };

    void poll(std::uint32_t tgid, Process &process, bool everything);

    std::map<std::uint32_t, Process> processes_;
    std::vector<cw_nccl_steps> samples_; // not appended yet
};

} // namespace collwire::sources
