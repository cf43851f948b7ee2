// SPDX-License-Identifier: Apache-2.0
// The records at the start of a generated node's capture: machine, NICs, processes, library,
// communicators, connections and their queue pairs.
#pragma once

#include <cstdint>
#include <vector>

#include "collwire/qp_records.h"
#include "collwire/socket_records.h"
#include "tools/trace-gen/job_clock.h"
#include "tools/trace-gen/job_plan.h"
#include "tools/trace-gen/job_rank.h"
#include "userspace/source/source.h"

namespace collwire::trace_gen {

inline constexpr std::uint64_t SAMPLE_NS = 1'000'000'000;
inline constexpr std::uint64_t QP_CREATED_NS = 200'000'000; // true time
inline constexpr std::uint64_t COMM_CREATED_NS = 400'000'000;
// Of each rank and communicator, about as many as were recorded of 4 ranks on 4 nodes.
inline constexpr std::uint32_t JOB_BOOTSTRAP_SOCKETS = 18;
inline constexpr std::uint32_t JOB_PROXY_SOCKETS = 4;
inline constexpr std::uint64_t JOB_SOCKET_BYTES = 300; // that it writes

class JobInventory {
public:
    JobInventory(const JobPlan &plan, std::uint32_t node, const JobClock &clock)
        : plan_(plan), node_(node), clock_(clock) {}

    void preamble(source::RecordSink &sink, std::uint32_t segment) const;
    // Everything of a rank before its first operation, which records its connections.
    void rank(source::RecordSink &sink, const RankProgram &program, std::uint32_t local) const;
    // The rank destroys its communicators.
    void end_of_rank(source::RecordSink &sink, const RankProgram &program, std::uint32_t local,
                     std::uint64_t true_ns) const;
    void connection(source::RecordSink &sink, const RankEdge &edge, std::uint64_t time_ns) const;
    void port_error_counters(source::RecordSink &sink) const;
    // Samples of them, and errors of NCCL of the time since the sample before.
    void signs(source::RecordSink &sink, std::uint64_t true_ns) const;
    void clock(source::RecordSink &sink, std::uint64_t true_ns) const;
    [[nodiscard]] cw_qp_key qp_key(const RankEdge &edge) const;
    [[nodiscard]] std::uint32_t qpn(const RankEdge &edge) const;
    [[nodiscard]] std::uint32_t nic_of(const RankEdge &edge) const;

private:
    void machine(source::RecordSink &sink, std::uint32_t segment) const;
    void nic(source::RecordSink &sink, std::uint32_t nic) const;
    void process(source::RecordSink &sink, std::uint32_t local) const;
    void queue_pair(source::RecordSink &sink, const RankEdge &edge) const;
    void communicator(source::RecordSink &sink, const JobCommunicator &comm, std::uint32_t rank,
                      std::uint32_t local) const;
    void channels(source::RecordSink &sink, const JobCommunicator &comm, std::uint32_t rank,
                  std::uint32_t pid) const;
    void neighbours(source::RecordSink &sink, const JobCommunicator &comm, std::uint32_t rank,
                    std::uint32_t pid) const;
    void sockets(source::RecordSink &sink, std::uint32_t pid, cw_nccl_socket_type type,
                 std::uint32_t n, std::uint64_t first_inode, std::uint64_t true_ns) const;
    [[nodiscard]] std::uint64_t process_start_ns() const { return clock_.boot_ns - SAMPLE_NS; }

    const JobPlan &plan_;
    std::uint32_t node_;
    JobClock clock_;
};

} // namespace collwire::trace_gen
