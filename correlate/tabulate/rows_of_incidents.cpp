// SPDX-License-Identifier: Apache-2.0
#include "correlate/tabulate/rows_of_incidents.h"

#include <set>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "correlate/nccl/port_incidents.h"
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

} // namespace

void rows_of_incidents(const Model &model, rows::RowSink &sink) {
    std::uint64_t number = 0;
    for (const nccl::PortIncident &incident : nccl::find_port_incidents(model)) {
        rows::put(sink, incident_row(model, incident, number));
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
