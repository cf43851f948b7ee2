// SPDX-License-Identifier: Apache-2.0
// Rows of what went wrong with ports, and what used them then.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "correlate/rows/column.h"

namespace collwire::rows {

struct IncidentRow {
    std::uint64_t incident = 0;
    std::uint64_t realtime_ns = 0;
    std::uint64_t duration_ns = 0;
    std::string host;
    std::string device;
    std::uint64_t port = 0;
    std::uint64_t times_down = 0;
    std::optional<std::uint64_t> down_ns;
    bool is_down_at_end = false;
    std::string kinds;
    std::uint64_t processes = 0;
    std::uint64_t running = 0;
    std::uint64_t perhaps_running = 0;
    std::uint64_t errors = 0;
    std::uint64_t unplaced_connections = 0;
    std::optional<std::uint64_t> shared;
};
template <> struct Declaration<IncidentRow> {
    static constexpr std::string_view TABLE = "port_incidents";
    static constexpr std::string_view MEANING =
        "Events of one port that follow each other within 10 s: one row for each stretch.";
    static constexpr Scope SCOPE = Scope::Report;
    static constexpr std::tuple COLUMNS{
        COLUMN(IncidentRow, incident, Number, "Number of the incident in this file."),
        COLUMN(IncidentRow, realtime_ns, Realtime, "The first event."),
        COLUMN(IncidentRow, duration_ns, Nanoseconds,
               "To the last event, or to the end of the recording if the port was down then."),
        COLUMN(IncidentRow, host, Text, "The host: hosts.host."),
        COLUMN(IncidentRow, device, Text, "The RDMA device."),
        COLUMN(IncidentRow, port, Number, "Its port."),
        COLUMN(IncidentRow, times_down, Count, "How often it went down."),
        COLUMN(IncidentRow, down_ns, Nanoseconds,
               "How long it was down in all, as far as edges show; null: not known."),
        COLUMN(IncidentRow, is_down_at_end, Flag, "1: it was down when the recording ended."),
        COLUMN(IncidentRow, kinds, Text, "The kinds of its events: events.kind, with commas."),
        COLUMN(IncidentRow, processes, Count,
               "Processes that had queue pairs or NCCL's sockets on the port then."),
        COLUMN(IncidentRow, running, Count,
               "Operations with bytes over the port that certainly ran then."),
        COLUMN(IncidentRow, perhaps_running, Count,
               "Operations of which the bounds of their end allow both."),
        COLUMN(IncidentRow, errors, Count,
               "Errors on its connections, until a minute after the last event."),
        COLUMN(IncidentRow, unplaced_connections, Count,
               "NCCL connections of the host that may use the port, too: their queue pairs are "
               "not known."),
        COLUMN(IncidentRow, shared, Number,
               "The incident of several ports that it is a part of: shared_incidents.shared; "
               "null: of none."),
    };
};

struct SharedIncidentRow {
    std::uint64_t shared = 0;
    std::optional<std::string> switch_name;
    std::optional<std::string> host;
    std::uint64_t ports = 0;
    std::uint64_t known_ports = 0;
    std::uint64_t realtime_ns = 0;
    std::uint64_t spread_ns = 0;
};
template <> struct Declaration<SharedIncidentRow> {
    static constexpr std::string_view TABLE = "shared_incidents";
    static constexpr std::string_view MEANING =
        "Incidents of ports that began within 3 s and share a switch or a host: at least two, and "
        "half of its ports that are known.";
    static constexpr Scope SCOPE = Scope::Report;
    static constexpr std::tuple COLUMNS{
        COLUMN(SharedIncidentRow, shared, Number, "Its number in this file."),
        COLUMN(SharedIncidentRow, switch_name, Text,
               "The switch, from the topology; null: the ports share a host."),
        COLUMN(SharedIncidentRow, host, Text, "The host; null: the ports share a switch."),
        COLUMN(SharedIncidentRow, ports, Count, "Its ports that had an incident."),
        COLUMN(SharedIncidentRow, known_ports, Count, "Its ports that are in a capture."),
        COLUMN(SharedIncidentRow, realtime_ns, Realtime, "When the first one began."),
        COLUMN(SharedIncidentRow, spread_ns, Nanoseconds,
               "To the beginning of the last one, by the clocks of the hosts."),
    };
};

struct IncidentOperationRow {
    std::uint64_t incident = 0;
    std::uint64_t operation = 0;
    bool is_certain = false;
};
template <> struct Declaration<IncidentOperationRow> {
    static constexpr std::string_view TABLE = "port_incident_operations";
    static constexpr std::string_view MEANING =
        "Operations with bytes over a port that ran while something was wrong with it.";
    static constexpr Scope SCOPE = Scope::Report;
    static constexpr std::tuple COLUMNS{
        COLUMN(IncidentOperationRow, incident, Number, "The incident: port_incidents.incident."),
        COLUMN(IncidentOperationRow, operation, Number, "The operation: operations.operation."),
        COLUMN(IncidentOperationRow, is_certain, Flag,
               "0: the bounds of its end also allow that it was over before."),
    };
};

} // namespace collwire::rows
