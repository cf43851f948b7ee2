// SPDX-License-Identifier: Apache-2.0
#include "correlate/report/json_incidents.h"

#include <algorithm>
#include <map>

#include <nlohmann/json.hpp>

#include "correlate/nccl/describe.h"
#include "correlate/report/units.h"

namespace collwire::report {

using model::Index;
using model::Model;
using model::NONE;

namespace {

constexpr std::size_t MOST_OPERATIONS = 1000;

Json operation_json(const nccl::Operation &operation, bool is_pair) {
    Json json{{"op", nccl::func_text(operation.func)}};
    json[is_pair ? "ordinal" : "seq"] = operation.seq;
    if (is_pair) {
        json["src_rank"] = operation.source;
        json["dst_rank"] = operation.destination;
    }
    json["replay"] = operation.replay == NONE ? Json(nullptr) : Json(operation.replay);
    return json;
}

Json use_json(const Model &model, const nccl::IncidentUse &use) {
    const std::vector<nccl::Operation> &all = use.is_pair ? model.nccl.p2p : model.nccl.collectives;
    const auto listed = [&](const std::vector<Index> &operations) {
        Json json = Json::array();
        for (std::size_t i = 0; i < std::min(operations.size(), MOST_OPERATIONS); ++i)
            json.push_back(operation_json(all[operations[i]], use.is_pair));
        return json;
    };
    Json json;
    json["comm"] = use.comm == NONE ? Json(nullptr) : Json(use.comm);
    json["ranks"] = use.ranks;
    json["kind"] = use.is_pair ? "p2p" : "collective";
    json["running"] = use.running.size();
    json["perhaps_running"] = use.perhaps.size();
    json["running_operations"] = listed(use.running);
    json["perhaps_running_operations"] = listed(use.perhaps);
    if (use.longest == NONE) {
        json["longest"] = nullptr;
    } else {
        const nccl::Operation &longest = all[use.longest];
        Json of = operation_json(longest, use.is_pair);
        of["least_duration_ns"] = number_or_null(longest.least_duration_ns);
        of["most_duration_ns"] = number_or_null(longest.most_duration_ns);
        json["longest"] = std::move(of);
    }
    json["usual_duration_ns"] = number_or_null(use.usual_ns);
    json["usual_of"] = use.usual_of;
    return json;
}

} // namespace

Json incident_json(const Model &model, const nccl::PortIncident &incident) {
    const model::Port &port = model.ports[incident.port];
    const model::Device &device = model.devices[port.device];
    const model::Host &host = model.hosts[device.host];
    std::map<std::string, std::uint64_t> kinds;
    for (const Index i : incident.events)
        ++kinds[model.events[i].kind];
    const std::uint64_t realtime_ns = host.realtime_ns(incident.begin_ns);
    Json json;
    json["time"] = utc(realtime_ns);
    json["realtime_ns"] = realtime_ns;
    json["end_realtime_ns"] = host.realtime_ns(incident.end_ns);
    json["host"] = host.name;
    json["device"] = device.name;
    json["port"] = port.number;
    json["netdev"] = text_or_null(port.netdev);
    json["switch"] = text_or_null(port.switch_id);
    json["switch_port"] = text_or_null(port.switch_port);
    json["events"] = kinds;
    json["times_down"] = incident.times_down;
    json["down_ns"] = number_or_null(incident.down_ns);
    json["down_at_end"] = incident.is_down_at_end;
    Json processes = Json::array();
    for (const Index i : incident.processes) {
        const model::Process &process = model.processes[i];
        processes.push_back({{"pid", process.pid},
                             {"slurm_job", text_or_null(process.slurm_job)},
                             {"pod_uid", text_or_null(process.pod_uid)},
                             {"container_id", text_or_null(process.container_id)}});
    }
    json["processes"] = std::move(processes);
    Json uses = Json::array();
    for (const nccl::IncidentUse &use : incident.uses)
        uses.push_back(use_json(model, use));
    json["communicators"] = std::move(uses);
    json["unplaced_connections"] = incident.unplaced_connections;
    json["errors"] = incident.errors; // their places in errors[]
    return json;
}

Json shared_incident_json(const Model &model, const nccl::SharedIncident &shared) {
    const bool is_host = shared.switch_id.empty();
    return {{"switch", text_or_null(shared.switch_id)},
            {"host", is_host ? Json(model.hosts[shared.host].name) : Json(nullptr)},
            {"ports", shared.ports},
            {"known_ports", shared.known_ports},
            {"time", utc(shared.realtime_ns)},
            {"realtime_ns", shared.realtime_ns},
            {"spread_ns", shared.spread_ns},
            {"incidents", shared.incidents}}; // their places in port_incidents[]
}

} // namespace collwire::report
