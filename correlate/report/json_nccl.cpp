// SPDX-License-Identifier: Apache-2.0
#include "correlate/report/json_nccl.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "collwire/socket_records.h"
#include "correlate/capture/nccl_names.h"
#include "correlate/nccl/describe.h"
#include "correlate/report/json_links.h"
#include "correlate/report/json_local.h"
#include "correlate/report/names.h"
#include "correlate/report/units.h"

namespace collwire::report {

using model::Index;
using model::Known;
using model::Model;
using model::NONE;
using nccl::Instance;
using nccl::Operation;
using nccl::Rung;
using topology::Tier;

namespace {

Json tiers_of(const Model &model, const Operation &operation) {
    Json json = Json::object();
    const nccl::TierBytes bytes = nccl::bytes_by_tier(model.nccl, operation);
    for (const Tier tier : ALL_TIERS) {
        const std::size_t index = model::index_of(tier);
        if ((operation.tiers & (1U << index)) == 0)
            continue;
        json[std::string(topology::tier_name(tier))] = {
            {"tx_payload_bytes", bytes[index].first},
            {"tx_wire_bytes", operation.has(nccl::OPERATION_WIRE_KNOWN) ? Json(bytes[index].second)
                                                                        : Json(nullptr)}};
    }
    return json;
}

Json parts_json(const Model &model, const std::vector<nccl::Part> &parts) {
    Json array = Json::array();
    for (const nccl::Part &part : parts) {
        const nccl::Link &link = model.nccl.links[part.link];
        Json qpns = Json::array();
        for (const Index qp : link.qps)
            qpns.push_back(model.qps[qp].key.qpn);
        Json sockets = Json::array();
        for (const Index socket : link.sockets)
            sockets.push_back(socket_ends_json(model, socket));
        const Instance &instance = model.nccl.instances[part.instance];
        const auto realtime = [&](std::uint64_t time_ns) {
            return number_or_null(time_ns == 0 ? 0
                                               : model.hosts[instance.host].realtime_ns(time_ns));
        };
        array.push_back(
            {{"rank", instance.record.rank},
             {"peer_rank", part.peer < 0 ? Json(nullptr) : Json(part.peer)},
             {"channel", part.channel == nccl::NO_CHANNEL ? Json(nullptr) : Json(part.channel)},
             {"direction", part.is_send ? "send" : "recv"},
             {"transport", nccl::transport_name(link.transport)},
             {"connection", connection_number(model, part.connection)},
             {"qpns", std::move(qpns)},
             {"sockets", std::move(sockets)},
             {"payload_bytes",
              part.share.is_known ? Json(part.share.payload_bytes) : Json(nullptr)},
             {"source", nccl::source_name(part.share.source)},
             {"rung", nccl::rung_name(part.share.rung)},
             {"begin_realtime_ns", realtime(part.time.begin_ns)},
             {"end_realtime_ns", realtime(part.time.end_ns)},
             {"end_after_realtime_ns", realtime(part.time.after_ns)},
             {"end_before_realtime_ns", realtime(part.time.before_ns)},
             {"end_known", text_or_null(nccl::end_known_name(part.time.known))}});
    }
    return array;
}

Json calls_json(const Model &model, const std::vector<nccl::OperationCall> &calls) {
    Json array = Json::array();
    for (const auto &[index, call, launch] : calls) {
        const Instance &instance = model.nccl.instances[index];
        array.push_back(
            {{"rank", instance.record.rank},
             {"op", nccl::func_text(call.func)},
             {"thread", number_or_null(call.tid)},
             {"stream", fmt::format("{:#x}", call.stream)},
             {"called_ns", call.time_ns},
             {"called_realtime_ns", model.hosts[instance.host].realtime_ns(call.time_ns)},
             {"launch",
              launch == model::NONE
                  ? Json(nullptr)
                  : Json(model.nccl.gathered.streams[instance.stream].launches[launch].order)}});
    }
    return array;
}

// The fields that collectives and pairs have in common, from the kind of operation on.
void add_operation(Json &json, const Model &model, const Operation &operation,
                   const nccl::Parts *parts) {
    const auto if_has = [&](std::uint16_t flag, std::uint64_t value) {
        return operation.has(flag) ? Json(value) : Json(nullptr);
    };
    json["count"] = operation.count;
    json["datatype"] = nccl::datatype_text(operation.datatype);
    json["algorithm"] = text_or_null(nccl::algorithm_text(operation.algorithm));
    json["protocol"] = text_or_null(nccl::protocol_text(operation.protocol));
    json["channels"] = number_or_null(operation.n_channels);
    json["size_bytes"] = known(nccl::size_bytes(operation));
    json["data_bytes"] = if_has(nccl::OPERATION_DATA_KNOWN, operation.data_bytes);
    json["tx_payload_bytes"] = if_has(nccl::OPERATION_PAYLOAD_KNOWN, operation.payload_bytes);
    json["tx_wire_bytes"] = if_has(nccl::OPERATION_WIRE_KNOWN, operation.wire_bytes);
    json["tiers"] = tiers_of(model, operation);
    json["rung"] = nccl::rung_name(operation.rung);
    json["source"] = nccl::source_name(nccl::source_of(operation));
    json["partial"] = operation.has(nccl::OPERATION_PARTIAL);
    json["truncated"] = operation.has(nccl::OPERATION_TRUNCATED);
    const bool is_captured = operation.has(nccl::OPERATION_CAPTURED);
    // Known from a launch only.
    json["captured"] =
        is_captured || operation.has(nccl::OPERATION_LAUNCHED) ? Json(is_captured) : Json(nullptr);
    json["launched"] = operation.has(nccl::OPERATION_LAUNCHED);
    json["launched_with"] = number_or_null(operation.batch);
    json["called_realtime_ns"] = number_or_null(operation.called_realtime_ns);
    json["begin_realtime_ns"] = number_or_null(operation.begin_realtime_ns);
    json["launched_realtime_ns"] = number_or_null(operation.launched_realtime_ns);
    json["end_realtime_ns"] = operation.end_known == nccl::EndKnown::Measured
                                  ? Json(operation.end_before_realtime_ns)
                                  : Json(nullptr);
    json["end_after_realtime_ns"] = number_or_null(operation.end_after_realtime_ns);
    json["end_before_realtime_ns"] = number_or_null(operation.end_before_realtime_ns);
    json["end_known"] = text_or_null(nccl::end_known_name(operation.end_known));
    const auto if_ended = [&](std::uint64_t value) {
        return operation.end_known == nccl::EndKnown::No ? Json(nullptr) : Json(value);
    };
    json["least_duration_ns"] = if_ended(operation.least_duration_ns);
    json["most_duration_ns"] = if_ended(operation.most_duration_ns);
    add_local(json, model, operation);
    if (parts != nullptr) {
        if (model.nccl.local.has_nodes)
            json["local_parts"] = local_parts_json(model, parts->local_of(operation));
        json["calls"] = calls_json(model, parts->calls_of(operation));
        json["parts"] = parts_json(model, parts->of(operation));
    }
}

Json replay_of(const Operation &operation) {
    return operation.replay == NONE ? Json(nullptr) : Json(operation.replay);
}

Json rank_of(const Operation &operation) {
    return operation.rank < 0 ? Json(nullptr) : Json(operation.rank);
}

} // namespace

Json nccl_image_json(const Model &model, const nccl::Image &image) {
    Json rungs = Json::object();
    for (std::size_t i = 0; i < image.rungs.size(); ++i)
        if (const std::string_view name = capture::nccl_capability_name(i); !name.empty())
            rungs[std::string(name)] = capture::rung_name(image.rungs[i]);
    return {{"host", model.hosts[model.sessions[image.session].host].name},
            {"path", image.path},
            {"version", text_or_null(nccl::library_version_text(image.version))},
            {"build_id", text_or_null(image.build_id)},
            {"rungs", std::move(rungs)},
            {"basis", text_or_null(image.basis)},
            {"reason", text_or_null(image.reason)}};
}

Json network_json(const Model &model, const nccl::NetworkUse &use) {
    return {{"host", model.hosts[model.sessions[use.session].host].name},
            {"pid", use.tgid},
            {"plugin", text_or_null(use.name)},
            {"file", text_or_null(use.path)},
            {"connections", use.n_connections},
            {"connections_with_qps", use.n_with_queue_pairs}};
}

Json collective_json(const Model &model, const Operation &operation, const nccl::Parts *parts) {
    Json json;
    json["comm"] = operation.comm;
    json["seq"] = operation.seq;
    json["seq_base"] = nccl::seq_base_name(operation.seq_base);
    json["rank"] = rank_of(operation);
    json["replay"] = replay_of(operation);
    json["op"] = nccl::func_text(operation.func);
    json["reduction"] = nccl::has_reduction(operation.func)
                            ? text_or_null(capture::nccl_reduction_name(
                                  static_cast<std::uint32_t>(operation.reduction)))
                            : Json(nullptr);
    json["root"] = nccl::has_root(operation.func) ? Json(operation.root) : Json(nullptr);
    json["ranks"] = operation.ranks;
    json["differs"] = operation.has(nccl::OPERATION_DIFFERS);
    add_operation(json, model, operation, parts);
    return json;
}

Json p2p_json(const Model &model, const Operation &operation, const nccl::Parts *parts) {
    Json json;
    json["comm"] = operation.comm;
    json["src_rank"] = operation.source;
    json["dst_rank"] = operation.destination;
    json["ordinal"] = operation.seq;
    json["ordinal_base"] = nccl::seq_base_name(operation.seq_base);
    json["rank"] = rank_of(operation);
    json["replay"] = replay_of(operation);
    json["send_seen"] = operation.has(nccl::OPERATION_SENT);
    json["recv_seen"] = operation.has(nccl::OPERATION_RECEIVED);
    add_operation(json, model, operation, parts);
    return json;
}

Json matrix_json(const nccl::MatrixKey &key, const nccl::MatrixCell &cell) {
    return {{"comm", key.comm},
            {"src_rank", key.source < 0 ? Json(nullptr) : Json(key.source)},
            {"dst_rank", key.destination < 0 ? Json(nullptr) : Json(key.destination)},
            {"transport", nccl::transport_name(key.transport)},
            {"payload_bytes", cell.payload_bytes},
            {"wire_bytes", known(cell.wire_bytes)},
            {"tier", topology::tier_name(key.tier)}};
}

// Null: no posts were counted in slices.
Json verified_json(const Model &model) {
    const nccl::PostVerification &verified = model.nccl.verified;
    if (verified.slices == 0)
        return nullptr;
    Json differences = Json::array();
    for (const nccl::PostDifference &of : verified.differences) {
        const nccl::Link &link = model.nccl.links[of.link];
        const model::Host &host = model.hosts[model.sessions[link.session].host];
        differences.push_back(
            {{"host", host.name},
             {"pid", link.tgid},
             {"rank", link.rank},
             {"peer_rank", link.peer},
             {"channel", link.channels.empty() ? Json(nullptr) : Json(link.channels.front())},
             {"begin_realtime_ns", host.realtime_ns(of.begin_ns)},
             {"end_realtime_ns", host.realtime_ns(of.end_ns)},
             {"operations", of.operations},
             {"posted_bytes", of.posted_bytes},
             {"derived_bytes", of.derived_bytes}});
    }
    return {{"slices", verified.slices},
            {"slices_ns", verified.slices_ns},
            {"on_ns", verified.on_ns},
            {"period_ns", verified.period_ns},
            {"derived_bytes", verified.derived_bytes},
            {"verified_bytes", verified.verified_bytes},
            {"operations", verified.operations},
            {"connections_equal", verified.connections_equal},
            {"connections_differ", verified.differences.size()},
            {"not_compared", verified.not_compared},
            {"queue_pairs_not_counted", verified.queue_pairs_not_counted},
            {"differences", std::move(differences)}};
}

// Null: no queue pair of a connection has measured wire bytes.
Json messages_json(const Model &model, const nccl::MessageComparison &of) {
    if (of.equal == 0 && of.not_computed == 0 && of.different.empty())
        return nullptr;
    Json differences = Json::array();
    for (const nccl::MessageDifference &difference : of.different) {
        const nccl::Link &link = model.nccl.links[difference.link];
        const model::Host &host = model.hosts[model.sessions[link.session].host];
        differences.push_back({{"host", host.name},
                               {"qpn", model.qps[link.qps.front()].key.qpn},
                               {"rank", link.rank},
                               {"peer_rank", link.peer},
                               {"wire_bytes", difference.measured_wire_bytes},
                               {"derived_wire_bytes", difference.derived_wire_bytes}});
    }
    return {{"queue_pairs_equal", of.equal},
            {"equal_wire_bytes", of.equal_bytes},
            {"queue_pairs_not_computed", of.not_computed},
            {"differences", std::move(differences)}};
}

Json identity_json(const Model &model) {
    const nccl::NcclFacts &nccl = model.nccl;
    if (!nccl.recorded)
        return nullptr;
    const nccl::Totals &totals = nccl.totals;
    const auto value = [&](std::uint64_t bytes) {
        return totals.is_known ? Json(bytes) : Json(nullptr);
    };
    Json json;
    for (const Rung rung : {Rung::Exact, Rung::Inferred, Rung::Process})
        json[std::string(nccl::rung_name(rung))] =
            value(totals.by_rung[static_cast<std::size_t>(rung)]);
    json["inferred_confirmed"] = value(totals.confirmed_bytes);
    Json by_source = Json::object();
    for (std::size_t i = 1; i < nccl::BYTE_SOURCES; ++i)
        by_source[std::string(nccl::source_name(static_cast<nccl::ByteSource>(i)))] =
            value(totals.by_source[i]);
    json["by_source"] = std::move(by_source);
    json["verified"] = verified_json(model);
    json["headers"] = {{"data", messages_json(model, nccl.messages.data)},
                       {"clear_to_send", messages_json(model, nccl.messages.clear_to_send)}};
    json["perhaps_counted_bytes"] = known(totals.perhaps_counted_bytes);
    json["connections_not_measured"] = totals.links_not_measured;
    json["ops_truncated"] = nccl.ops_truncated;
    json["launches_unreadable"] = nccl.launches_unreadable;
    json["records_of_no_communicator"] = nccl.orphans;
    return json;
}

Json control_json(const Model &model) {
    if (!model.nccl.recorded)
        return nullptr;
    const nccl::Control &control = model.nccl.control;
    const auto of_type = [&](cw_nccl_socket_type type) -> Json {
        const nccl::ControlSockets &of = control.sockets[type];
        if (of.sockets == 0)
            return nullptr;
        return {{"sockets", of.sockets}, {"payload_bytes", of.payload_bytes}};
    };
    return {{"clear_to_send",
             {{"payload_bytes", known(control.clear_to_send_payload_bytes)},
              {"wire_bytes", known(control.clear_to_send_wire_bytes)},
              {"derived_wire_bytes", known(control.clear_to_send_derived_wire_bytes)}}},
            {"flush",
             {{"payload_bytes", known(control.flush_payload_bytes)},
              {"wire_bytes", known(control.flush_wire_bytes)}}},
            {"acknowledgements", {{"wire_bytes", known(control.ack_wire_bytes)}}},
            {"socket_headers", {{"payload_bytes", known(control.socket_header_bytes)}}},
            {"other_sockets", {{"payload_bytes", known(control.other_socket_bytes)}}},
            {"bootstrap", of_type(CW_NCCL_SOCKET_BOOTSTRAP)},
            {"proxy", of_type(CW_NCCL_SOCKET_PROXY)},
            {"network_setup", of_type(CW_NCCL_SOCKET_NETWORK_SETUP)},
            {"ras", of_type(CW_NCCL_SOCKET_RAS)}};
}

Json unjoined_json(const Model &model, const nccl::UnlistedLaunches &unjoined) {
    const Instance &instance = model.nccl.instances[unjoined.instance];
    return {{"comm", instance.comm},
            {"rank", instance.record.rank},
            {"op", nccl::func_text(unjoined.func)},
            {"captured", unjoined.captured},
            {"launches", unjoined.launches},
            {"tx_payload_bytes", known(unjoined.payload_bytes)},
            {"rung", nccl::rung_name(unjoined.rung)}};
}

Json replays_json(const Model &model, const nccl::UnlistedLaunches &replays) {
    const Instance &instance = model.nccl.instances[replays.instance];
    return {{"comm", instance.comm},
            {"rank", instance.record.rank},
            {"op", nccl::func_text(replays.func)},
            {"launches", replays.launches},
            {"tx_payload_bytes", known(replays.payload_bytes)},
            {"rung", nccl::rung_name(replays.rung)}};
}

Json other_calls_json(const nccl::OtherCalls::value_type &calls) {
    const auto &[comm, rank, func] = calls.first;
    return {{"comm", comm == NONE ? Json(nullptr) : Json(comm)},
            {"rank", rank},
            {"op", nccl::func_text(func)},
            {"calls", calls.second}};
}

Json finding_json(const nccl::Finding &finding) {
    return {{"kind", finding.kind},
            {"what", finding.what},
            {"comms", finding.communicators},
            {"hosts", finding.hosts},
            {"evidence", finding.evidence}};
}

void add_nccl(Json &json, const Model &model, Index qp) {
    const nccl::NcclFacts &nccl = model.nccl;
    const nccl::QpIdentity of = qp < nccl.qps.size() ? nccl.qps[qp] : nccl::QpIdentity{};
    json["role"] = text_or_null(nccl::role_name(of.role));
    const nccl::Link *link = of.link == NONE ? nullptr : &nccl.links[of.link];
    add_link(json, nccl, link);
    if (link != nullptr)
        json["identity_rung"] = nccl::rung_name(std::min(of.rung, link->rung));
    json["derived_tx_payload_bytes"] = known(of.derived_payload_bytes);
    json["derived_tx_wire_bytes"] = known(of.derived_wire_bytes);
}

} // namespace collwire::report
