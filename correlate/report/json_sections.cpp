// SPDX-License-Identifier: Apache-2.0
#include "correlate/report/json_sections.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "collwire/qp_records.h"
#include "collwire/wire_records.h"
#include "correlate/capture/kinds.h"
#include "correlate/report/json_nccl.h"
#include "correlate/report/names.h"
#include "correlate/report/tier_sums.h"
#include "correlate/report/units.h"

namespace collwire::report {

using model::Index;
using model::Known;
using model::Model;
using model::NONE;
using model::Qp;
using topology::Tier;

Json text_or_null(std::string_view text) {
    return text.empty() ? Json(nullptr) : Json(text);
}

Json number_or_null(std::uint64_t value) {
    return value == 0 ? Json(nullptr) : Json(value);
}

namespace {

Json by_tier_json(const std::array<Known, model::TIERS> &by_tier) {
    Json json = Json::object();
    for (const Tier tier : ALL_TIERS)
        if (const Known &bytes = by_tier[model::index_of(tier)])
            json[std::string(topology::tier_name(tier))] = *bytes;
    return json;
}

Json device_name(const Model &model, Index device) {
    return device == NONE ? Json(nullptr) : Json(model.devices[device].name);
}

Json wire_direction_json(const cw_wire_direction &direction) {
    Json json = Json::object();
    if (direction.first_ns != 0)
        json["first"] = {{"time_ns", direction.first_ns},
                         {"psn", direction.first_psn},
                         {"opcode", direction.first_opcode}};
    for (std::size_t i = 0; i < CW_WIRE_CLASSES; ++i)
        if (direction.frames[i] != 0)
            json[std::string(capture::wire_class_name(i))] = {
                {"frames", direction.frames[i]},
                {"wire_bytes", direction.wire_bytes[i]},
                {"payload_bytes", direction.payload_bytes[i]}};
    return json;
}

void add_address(Json &json, const Qp &qp) {
    json["local_gid"] = qp.has(CW_QP_SGID) ? Json(model::gid_text(qp.sgid())) : Json(nullptr);
    const bool has_dgid =
        qp.has(CW_QP_ADDRESS) && (qp.has(CW_QP_GRH) || !model::is_zero(qp.dgid()));
    json["remote_gid"] =
        has_dgid && !qp.is_datagram() ? Json(model::gid_text(qp.dgid())) : Json(nullptr);
    json["remote_qpn"] =
        qp.has(CW_QP_DEST) && !qp.is_datagram() ? Json(qp.address.dest_qpn) : Json(nullptr);
    json["remote_lid"] = qp.has(CW_QP_ADDRESS) && !qp.is_datagram()
                             ? number_or_null(qp.address.dlid)
                             : Json(nullptr);
    json["remote_host"] = text_or_null(qp.remote_host);
    json["path_mtu_bytes"] = number_or_null(qp.path_mtu_bytes());
    json["gid_type"] =
        qp.has(CW_QP_SGID) ? Json(capture::gid_type_name(qp.address.gid_type)) : Json(nullptr);
    const auto of_address = [&](std::uint32_t value) {
        return qp.has(CW_QP_ADDRESS) && !qp.has(CW_QP_FROM_NCCL) ? Json(value) : Json(nullptr);
    };
    json["service_level"] = of_address(qp.address.service_level);
    json["traffic_class"] = of_address(qp.address.traffic_class);
    json["flow_label"] = of_address(qp.address.flow_label);
    json["udp_source_port"] = qp.has(CW_QP_UDP_SPORT) ? Json(qp.address.udp_sport) : Json(nullptr);
}

} // namespace

Json known(const Known &value) {
    return value ? Json(*value) : Json(nullptr);
}

namespace {

Json tcp_json(const model::TcpSums &tcp) {
    if (!tcp.is_used())
        return nullptr;
    return {{"sockets", tcp.sockets},
            {"tx_payload_bytes", known(tcp.tx_payload_bytes)},
            {"rx_payload_bytes", known(tcp.rx_payload_bytes)},
            {"retransmitted_bytes", known(tcp.retransmitted_bytes)},
            {"connections_without_bytes", tcp.connections_without_bytes},
            {"derived_tx_payload_bytes", known(tcp.derived_tx_payload_bytes)}};
}

} // namespace

Json sums_json(const model::Sums &sums) {
    Json by_rung = Json::object();
    for (std::size_t i = 0; i < sums.tx_wire_bytes_by_rung.size(); ++i)
        if (sums.tx_wire_bytes_by_rung[i])
            by_rung[std::string(rung_name(static_cast<model::BytesRung>(i)))] =
                *sums.tx_wire_bytes_by_rung[i];
    return {{"qps", sums.qps},
            {"qps_without_bytes", sums.qps_without_bytes},
            {"tx_wire_bytes", known(sums.tx_wire_bytes)},
            {"tx_payload_bytes", known(sums.tx_payload_bytes)},
            {"rx_wire_bytes", known(sums.rx_wire_bytes)},
            {"rx_payload_bytes", known(sums.rx_payload_bytes)},
            {"retransmitted_wire_bytes", known(sums.retransmitted_wire_bytes)},
            {"rx_wire_bytes_from_uncaptured", known(sums.rx_wire_bytes_from_uncaptured)},
            {"tx_wire_bytes_by_rung", std::move(by_rung)},
            {"derived_tx_payload_bytes", known(sums.derived_tx_payload_bytes)},
            {"derived_tx_wire_bytes", known(sums.derived_tx_wire_bytes)},
            {"tcp", tcp_json(sums.tcp)}};
}

Json tiers_json(const Model &model) {
    const auto sums = tier_sums(model);
    Json json = Json::object();
    for (const Tier tier : ALL_TIERS)
        json[std::string(topology::tier_name(tier))] = sums_json(sums[model::index_of(tier)]);
    return json;
}

Json host_json(const Model &model, Index index) {
    const model::Host &host = model.hosts[index];
    Json devices = Json::array();
    for (const model::Device &device : model.devices)
        if (device.host == index)
            devices.push_back(
                {{"name", device.name},
                 {"driver", text_or_null(device.driver)},
                 {"pci_address", text_or_null(device.pci_address)},
                 {"numa_node", device.numa_node < 0 ? Json(nullptr) : Json(device.numa_node)},
                 {"software", device.is_software()}});
    Json recordings = Json::array();
    for (const model::Session &session : model.sessions)
        if (session.host == index)
            recordings.push_back({{"session", fmt::format("{:016x}", session.id)},
                                  {"begin_ns", session.begin_ns},
                                  {"end_ns", session.end_ns},
                                  {"begin", utc(host.realtime_ns(session.begin_ns))},
                                  {"end", utc(host.realtime_ns(session.end_ns))},
                                  {"segments", session.segments.size()},
                                  {"from_start", session.from_start},
                                  {"ended_in_order", session.ended},
                                  {"excluded", session.excluded},
                                  {"probes_placed", session.probes_placed},
                                  {"tool_version", session.tool_version}});
    return {{"name", host.name},
            {"hostname", host.hostname},
            {"boot_id", host.boot_id},
            {"kernel_release", host.kernel_release},
            {"devices", std::move(devices)},
            {"recordings", std::move(recordings)}};
}

Json capture_json(const Model &model, const model::Capture &capture) {
    Json json;
    json["path"] = capture.path;
    const bool used = capture.session != NONE;
    json["host"] =
        used ? Json(model.hosts[model.sessions[capture.session].host].name) : Json(nullptr);
    json["session"] =
        used ? Json(fmt::format("{:016x}", model.sessions[capture.session].id)) : Json(nullptr);
    json["segment"] = used ? Json(capture.segment) : Json(nullptr);
    json["end"] = capture_end_name(capture.end);
    json["message"] = capture.message;
    json["damaged_at_bytes"] =
        capture.end == model::CaptureEnd::Damaged ? Json(capture.damaged_at_bytes) : Json(nullptr);
    json["exit_status"] = capture.exit_status ? Json(*capture.exit_status) : Json(nullptr);
    json["records"] = capture.records;
    json["unknown_records"] = capture.unknown_records;
    json["unusable_records"] = capture.unusable_records;
    json["first_time_ns"] = capture.first_time_ns;
    json["last_time_ns"] = capture.last_time_ns;
    return json;
}

Json process_json(const Model &model, const model::ProcessSums &sums) {
    const model::Process &process = model.processes[sums.process];
    Json json;
    json["host"] = model.hosts[process.host].name;
    json["pid"] = process.pid;
    json["namespace_pid"] = number_or_null(process.namespace_pid);
    json["start_boottime_ns"] = number_or_null(process.start_boottime_ns);
    json["comm"] = text_or_null(process.comm);
    json["argv0"] = text_or_null(process.argv0);
    json["script"] = text_or_null(process.script);
    json["executable"] = text_or_null(process.executable);
    json["cmdline"] = text_or_null(process.cmdline);
    json["uid"] = process.described ? Json(process.uid) : Json(nullptr);
    json["numa_node"] = process.numa_node < 0 ? Json(nullptr) : Json(process.numa_node);
    json["slurm_job"] = text_or_null(process.slurm_job);
    json["slurm_step"] = text_or_null(process.slurm_step);
    json["pod_uid"] = text_or_null(process.pod_uid);
    json["container_id"] = text_or_null(process.container_id);
    json["cgroup"] = text_or_null(process.cgroup);
    json.update(sums_json(sums.all));
    json["tx_wire_bytes_by_tier"] = by_tier_json(sums.tx_wire_bytes_by_tier);
    return json;
}

Json node_pair_json(const model::NodePair &pair) {
    Json json = {{"source", pair.source},
                 {"destination", pair.destination},
                 {"destination_captured", pair.destination_captured}};
    json.update(sums_json(pair.all));
    json["tx_wire_bytes_by_tier"] = by_tier_json(pair.tx_wire_bytes_by_tier);
    return json;
}

Json port_json(const Model &model, Index index) {
    const model::Port &port = model.ports[index];
    const model::Device &device = model.devices[port.device];
    const model::PortBytes &bytes = port.bytes;
    const auto unexplained = [](const Known &all, const Known &explained) {
        if (!all || !explained)
            return Json(nullptr);
        // Below 0 if the queue pairs were read later than the counter; see uncertainty_bytes.
        return *all >= *explained ? Json(*all - *explained)
                                  : Json(-static_cast<std::int64_t>(
                                        std::min<std::uint64_t>(*explained - *all, INT64_MAX)));
    };
    Json json;
    json["host"] = model.hosts[device.host].name;
    json["device"] = device.name;
    json["port"] = port.number;
    json["netdev"] = text_or_null(port.netdev);
    json["link_layer"] = capture::link_layer_name(port.link_layer);
    json["state"] = port.state == 0 ? Json(nullptr) : Json(capture::port_state_name(port.state));
    json["rate_mbps"] = number_or_null(port.rate_mbps);
    json["switch"] = text_or_null(port.switch_id);
    json["switch_port"] = text_or_null(port.switch_port);
    json["rail"] = port.rail ? Json(*port.rail) : Json(nullptr);
    json["tx_wire_bytes"] = known(bytes.tx_wire_bytes);
    json["rx_wire_bytes"] = known(bytes.rx_wire_bytes);
    json["explained_tx_bytes"] = known(bytes.explained_tx_bytes);
    json["unexplained_tx_bytes"] = unexplained(bytes.tx_wire_bytes, bytes.explained_tx_bytes);
    json["explained_rx_bytes"] = known(bytes.explained_rx_bytes);
    json["unexplained_rx_bytes"] = unexplained(bytes.rx_wire_bytes, bytes.explained_rx_bytes);
    json["uncertainty_bytes"] = known(bytes.uncertainty_bytes);
    json["self_tx_wire_bytes"] = known(bytes.self_tx_wire_bytes);
    json["tcp_tx_payload_bytes"] = known(bytes.tcp_tx_bytes);
    json["tcp_rx_payload_bytes"] = known(bytes.tcp_rx_bytes);
    json["source"] = bytes.source;
    json["source_note"] = text_or_null(bytes.source_note);
    json["counter_resets"] = bytes.counter_resets;
    json["qps_without_bytes"] = bytes.qps_without_bytes;
    Json gids = Json::array();
    for (const model::Gid &gid : port.gids)
        gids.push_back(model::gid_text(gid));
    json["gids"] = std::move(gids);
    json["lid"] = number_or_null(port.lid);
    return json;
}

Json event_json(const Model &model, const model::Event &event) {
    Json json;
    json["time"] = utc(event.realtime_ns);
    json["realtime_ns"] = event.realtime_ns;
    json["time_ns"] = event.time_ns;
    json["end_ns"] = number_or_null(event.end_ns);
    json["host"] = model.hosts[event.host].name;
    json["device"] = device_name(model, event.device);
    json["port"] = event.port != NONE ? Json(model.ports[event.port].number)
                                      : number_or_null(event.port_number);
    json["netdev"] = text_or_null(event.netdev);
    json["qpn"] = number_or_null(event.qpn);
    json["pid"] = event.process == NONE ? Json(nullptr) : Json(model.processes[event.process].pid);
    json["kind"] = event.kind;
    json["what"] = event.what;
    json["derived"] = event.derived;
    json["evidence"] = event.evidence;
    json["peers"] = event.peers;
    return json;
}

Json qp_json(const Model &model, const Qp &qp) {
    const model::Host &host = model.hosts[qp.host];
    const model::QpBytes &bytes = qp.bytes;
    Json json;
    json["host"] = host.name;
    json["device"] = device_name(model, qp.device);
    json["port"] = number_or_null(qp.port_number);
    json["qpn"] = qp.key.qpn;
    json["generation_ns"] = qp.key.generation_ns;
    json["type"] = qp_type_text(qp.type);
    add_address(json, qp);
    if (qp.is_datagram()) {
        Json peers = Json::array();
        for (const model::UdPeer &peer : qp.ud_peers)
            peers.push_back({{"gid", model::gid_text(peer.dgid)},
                             {"qpn", peer.dest_qpn},
                             {"host", text_or_null(peer.remote_host)},
                             {"tier", topology::tier_name(peer.tier)},
                             {"tx_frames", peer.tx_frames},
                             {"tx_wire_bytes", peer.tx_wire_bytes},
                             {"tx_payload_bytes", peer.tx_payload_bytes}});
        json["peers"] = std::move(peers);
    }
    json["pid"] = qp.process == NONE ? Json(nullptr) : Json(model.processes[qp.process].pid);
    json["owner"] = qp.has(CW_QP_KERNEL) ? "kernel" : qp.process != NONE ? "process" : "unknown";
    json["tier"] = topology::tier_name(qp.tier);
    json["tx_payload_bytes"] = known(bytes.tx_payload_bytes);
    json["rx_payload_bytes"] = known(bytes.rx_payload_bytes);
    json["tx_wire_bytes"] = known(bytes.tx_wire_bytes);
    json["rx_wire_bytes"] = known(bytes.rx_wire_bytes);
    json["retransmitted_wire_bytes"] = known(bytes.retransmitted_wire_bytes);
    json["bytes_rung"] = rung_name(bytes.rung);
    json["identity_rung"] = qp.process != NONE ? "process" : "none";
    add_nccl(json, model, static_cast<Index>(&qp - model.qps.data()));
    json["rx_source"] = bytes.rx_from_peer                     ? Json("peer_posts")
                        : bytes.rung == model::BytesRung::Wire ? Json("own_packets")
                                                               : Json(nullptr);
    json["tx_response_wire_bytes"] = known(bytes.tx_response_wire_bytes);
    json["tx_ack_wire_bytes"] = known(bytes.tx_ack_wire_bytes);
    json["posted_tx_payload_bytes"] = known(qp.posted_tx_payload_bytes);
    json["assumed_ipv4"] = bytes.assumed_ipv4;
    json["damaged_by"] = qp.damaged_by;
    json["pairing"] = pairing_name(qp.pairing);
    if (qp.peer != NONE) {
        const Qp &peer = model.qps[qp.peer];
        json["peer"] = {{"host", model.hosts[peer.host].name},
                        {"device", device_name(model, peer.device)},
                        {"qpn", peer.key.qpn},
                        {"generation_ns", peer.key.generation_ns}};
    } else {
        json["peer"] = nullptr;
    }
    const std::string_view state = capture::qp_state_name(qp.state);
    json["state"] = text_or_null(state);
    json["preexisting"] = qp.has(CW_QP_PREEXISTING);
    json["created"] = utc(host.realtime_ns(qp.key.generation_ns));
    json["destroyed_ns"] = number_or_null(qp.destroyed_ns);
    if (qp.wire) {
        json["wire"] = {{"tx", wire_direction_json(qp.wire->last.tx)},
                        {"rx", wire_direction_json(qp.wire->last.rx)},
                        {"tx_failed_frames", qp.wire->last.tx_failed_frames}};
    }
    return json;
}

} // namespace collwire::report
