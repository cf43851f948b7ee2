// SPDX-License-Identifier: Apache-2.0
// When something was wrong with a port, and which processes, communicators and operations used it
// then.
#pragma once

#include <cstdint>
#include <vector>

#include "correlate/model/model.h"

namespace collwire::nccl {

// Of one communicator. Operations with bytes over the port, by a rank of the port's host.
struct IncidentUse {
    Index comm = NONE;
    std::vector<std::int32_t> ranks; // whose connections use the port, ascending
    bool is_pair = false;            // sends with their receives; else collectives
    // Indices in NcclFacts, by launch. Running: launched before the incident's end, and not
    // complete at some moment of it. Perhaps: bounds of their end allow both.
    std::vector<Index> running;
    std::vector<Index> perhaps;
    Index longest = NONE; // of the running ones, by least_duration_ns
    // The median of most_duration_ns of operations equal to the longest, of the same communicator,
    // that were neither; 0: of none is the end known.
    std::uint64_t usual_ns = 0;
    std::uint64_t usual_of = 0; // operations
};

// Events of one port that follow each other within 10 s.
struct PortIncident {
    Index port = NONE;
    std::vector<Index> events; // in Model, by time
    // By the clock of the port's host. The end is that of the recording if is_down_at_end.
    std::uint64_t begin_ns = 0, end_ns = 0;
    std::uint64_t down_ns = 0; // without carrier, or not active; as far as edges show
    std::uint32_t times_down = 0;
    bool is_down_at_end = false;
    std::vector<Index> processes; // in Model: with queue pairs or NCCL's sockets on it
    std::vector<IncidentUse> uses;
    std::vector<Index> errors; // in NcclFacts: of its connections, until a minute after
    // NCCL connections of the host whose queue pairs are not known: some may use the port.
    std::uint64_t unplaced_connections = 0;
};

// By time. Needs operations, with their times, and errors.
[[nodiscard]] std::vector<PortIncident> find_port_incidents(const model::Model &model);

} // namespace collwire::nccl
