// SPDX-License-Identifier: Apache-2.0
#include "correlate/report/json_local.h"

#include <map>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "correlate/nccl/describe.h"

namespace collwire::report {

using model::Model;
using nccl::LocalState;

namespace {

// The switch of NVLS is no rank.
Json rank_or_null(std::int32_t rank) {
    return rank < 0 ? Json(nullptr) : Json(rank);
}

Json bytes_json(const nccl::LocalBytes &bytes) {
    return {{"payload_bytes", bytes.payload_bytes}, {"data_bytes", bytes.data_bytes}};
}

Json bytes_by_name(const std::map<std::string_view, nccl::LocalBytes> &all) {
    Json json = Json::object();
    for (const auto &[name, bytes] : all)
        json[std::string(name)] = bytes_json(bytes);
    return json;
}

Json sums_json(const std::pair<const std::pair<model::Index, std::uint8_t>, nccl::LocalSums> &of) {
    const auto &[key, sums] = of;
    Json reasons = Json::object();
    for (std::size_t i = 1; i < sums.not_modelled.size(); ++i)
        if (sums.not_modelled[i] != 0)
            reasons[std::string(nccl::name_of(static_cast<nccl::NotModelled>(i)))] =
                sums.not_modelled[i];
    std::map<std::string_view, nccl::LocalBytes> transports, wires;
    for (const nccl::LocalTransport transport : nccl::ALL_LOCAL_TRANSPORTS) {
        const auto &bytes = sums.bytes[static_cast<std::size_t>(transport)];
        if (bytes.payload_bytes == 0)
            continue;
        transports[nccl::local_transport_name(transport)].add(bytes);
        if (const auto wire = nccl::local_wire_name(transport); !wire.empty())
            wires[wire].add(bytes);
    }
    const bool is_any = sums.modelled + sums.partial != 0;
    return {{"comm", key.first},
            {"op", nccl::func_text(key.second)},
            {"operations", sums.operations},
            {"modelled", sums.modelled},
            {"partial", sums.partial},
            {"not_recorded", sums.not_recorded},
            {"not_modelled", std::move(reasons)},
            {"transports", is_any ? bytes_by_name(transports) : Json(nullptr)},
            {"wires", is_any ? bytes_by_name(wires) : Json(nullptr)}};
}

std::string_view state_name(LocalState state) {
    switch (state) {
    case LocalState::NotRecorded:
        return "not_recorded";
    case LocalState::NotModelled:
        return "not_modelled";
    case LocalState::Partial:
        return "partial";
    case LocalState::Modelled:
        return "modelled";
    case LocalState::None:
        break;
    }
    return "none";
}

} // namespace

Json local_json(const Model &model) {
    const nccl::LocalFacts &local = model.nccl.local;
    if (!local.has_nodes)
        return nullptr;
    Json edges = Json::array();
    for (const auto &[key, bytes] : local.matrix) {
        Json edge = {{"comm", key.comm},
                     {"src_rank", rank_or_null(key.source)},
                     {"dst_rank", rank_or_null(key.destination)},
                     {"transport", nccl::local_transport_name(key.transport)},
                     {"wire", text_or_null(nccl::local_wire_name(key.transport))}};
        edge.update(bytes_json(bytes));
        edges.push_back(std::move(edge));
    }
    Json operations = Json::array();
    for (const auto &of : local.sums)
        operations.push_back(sums_json(of));
    return {{"source", "modelled"}, {"edges", edges}, {"operations", operations}};
}

void add_local(Json &json, const Model &model, const nccl::Operation &operation) {
    const nccl::NcclFacts &nccl = model.nccl;
    if (!nccl.local.has_nodes)
        return;
    const bool is_pair = operation.source >= 0 || operation.destination >= 0;
    const auto &operations = is_pair ? nccl.p2p : nccl.collectives;
    const auto place = static_cast<std::size_t>(&operation - operations.data());
    const nccl::LocalOperation &local = (is_pair ? nccl.local.p2p : nccl.local.collectives)[place];
    const bool is_known = local.state == LocalState::Modelled || local.state == LocalState::Partial;
    json["local"] = state_name(local.state);
    json["local_payload_bytes"] = is_known ? Json(local.payload_bytes) : Json(nullptr);
    json["local_not_modelled"] =
        local.state == LocalState::NotModelled ? Json(nccl::name_of(local.reason)) : Json(nullptr);
}

Json local_parts_json(const Model &model, const std::vector<nccl::LocalPart> &parts) {
    Json array = Json::array();
    for (const nccl::LocalPart &part : parts) {
        const nccl::LocalEdge &edge = part.send.edge;
        const std::int32_t rank = model.nccl.instances[part.instance].record.rank;
        const bool is_send = edge.sender == rank;
        Json json = {
            {"rank", rank},
            {"peer_rank", rank_or_null(is_send ? edge.receiver : edge.sender)},
            {"channel", edge.channel == nccl::ALL_CHANNELS ? Json(nullptr) : Json(edge.channel)},
            {"direction", is_send ? "send" : "recv"},
            {"transport", nccl::local_transport_name(part.send.transport)},
            {"wire", text_or_null(nccl::local_wire_name(part.send.transport))}};
        json.update(bytes_json({edge.payload_bytes, edge.data_bytes}));
        array.push_back(std::move(json));
    }
    return array;
}

} // namespace collwire::report
