// SPDX-License-Identifier: Apache-2.0
#include "correlate/tabulate/rows_of_incidents.h"

#include <optional>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "correlate/nccl/port_incidents.h"
#include "correlate/nccl/shared_incidents.h"
#include "correlate/rows/incident_rows.h"
#include "correlate/tabulate/convert.h"

namespace collwire::tabulate {

using model::Index;
using model::Model;

namespace {

rows::IncidentRow incident_row(const Model &model, const nccl::PortIncident &incident,
                               std::uint64_t number) {
    const model::Port &port = model.ports[incident.port];
    const model::Device &device = model.devices[port.device];
    const model::Host &host = model.hosts[device.host];
    std::set<std::string> kinds;
    for (const Index i : incident.events)
        kinds.insert(model.events[i].kind);
    rows::IncidentRow row;
    row.incident = number;
    row.realtime_ns = host.realtime_ns(incident.begin_ns);
    row.duration_ns = incident.end_ns - incident.begin_ns;
    row.host = host.name;
    row.device = device.name;
    row.port = port.number;
    row.times_down = incident.times_down;
    row.down_ns = if_not_0(incident.down_ns);
    row.is_down_at_end = incident.is_down_at_end;
    row.kinds = fmt::format("{}", fmt::join(kinds, ","));
    row.processes = incident.processes.size();
    for (const nccl::IncidentUse &use : incident.uses) {
        row.running += use.running.size();
        row.perhaps_running += use.perhaps.size();
    }
    row.errors = incident.errors.size();
    row.unplaced_connections = incident.unplaced_connections;
    return row;
}

// Of each incident: the one of several ports that it is a part of.
std::vector<std::optional<std::uint64_t>>
put_shared(const Model &model, const std::vector<nccl::PortIncident> &incidents,
           rows::RowSink &sink) {
    std::vector<std::optional<std::uint64_t>> of(incidents.size());
    std::uint64_t number = 0;
    for (const nccl::SharedIncident &shared : nccl::find_shared_incidents(model, incidents)) {
        rows::SharedIncidentRow row{.shared = number,
                                    .switch_name = {},
                                    .host = {},
                                    .ports = shared.ports,
                                    .known_ports = shared.known_ports,
                                    .realtime_ns = shared.realtime_ns,
                                    .spread_ns = shared.spread_ns};
        if (shared.switch_id.empty())
            row.host = model.hosts[shared.host].name;
        else
            row.switch_name = shared.switch_id;
        rows::put(sink, row);
        for (const std::size_t i : shared.incidents)
            of[i] = number;
        ++number;
    }
    return of;
}

} // namespace

void rows_of_incidents(const Model &model, rows::RowSink &sink) {
    const std::vector<nccl::PortIncident> incidents = nccl::find_port_incidents(model);
    const std::vector<std::optional<std::uint64_t>> shared = put_shared(model, incidents, sink);
    std::uint64_t number = 0;
    for (const nccl::PortIncident &incident : incidents) {
        rows::IncidentRow row = incident_row(model, incident, number);
        row.shared = shared[number];
        rows::put(sink, row);
        for (const nccl::IncidentUse &use : incident.uses) {
            const std::size_t first = use.is_pair ? model.nccl.collectives.size() : 0;
            for (const Index i : use.running)
                rows::put(sink, rows::IncidentOperationRow{number, first + i, true});
            for (const Index i : use.perhaps)
                rows::put(sink, rows::IncidentOperationRow{number, first + i, false});
        }
        ++number;
    }
}

} // namespace collwire::tabulate
