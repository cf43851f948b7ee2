// SPDX-License-Identifier: Apache-2.0
#include "correlate/report/json_errors.h"

#include <set>

#include <nlohmann/json.hpp>

#include "correlate/capture/kinds.h"
#include "correlate/nccl/describe.h"
#include "correlate/nccl/error_text.h"
#include "correlate/nccl/warning_text.h"
#include "correlate/report/units.h"

namespace collwire::report {

using model::Model;
using model::NONE;

namespace {

Json operation_json(const nccl::NcclFacts &nccl, const nccl::NcclError &error) {
    if (error.operation == NONE)
        return nullptr;
    const nccl::Operation &operation =
        error.is_pair ? nccl.p2p[error.operation] : nccl.collectives[error.operation];
    Json json{{"op", nccl::func_text(operation.func)}};
    json[error.is_pair ? "ordinal" : "seq"] = operation.seq;
    if (error.is_pair) {
        json["src_rank"] = operation.source;
        json["dst_rank"] = operation.destination;
    }
    json["known"] = error.is_under_way ? "under_way" : "last_launched";
    return json;
}

} // namespace

Json error_json(const Model &model, const nccl::NcclError &error) {
    const nccl::NcclFacts &nccl = model.nccl;
    const model::Host &host = model.hosts[model.sessions[error.session].host];
    const std::uint64_t realtime_ns = host.realtime_ns(error.time_ns);
    const nccl::Instance *instance =
        error.instance == NONE ? nullptr : &nccl.instances[error.instance];
    const std::int32_t peer = nccl::peer_of(nccl, error);
    Json json;
    json["time"] = utc(realtime_ns);
    json["realtime_ns"] = realtime_ns;
    json["after_realtime_ns"] =
        error.after_ns == 0 ? Json(nullptr) : Json(host.realtime_ns(error.after_ns));
    json["before_recording"] = error.was_there;
    json["host"] = host.name;
    json["pid"] = error.tgid;
    json["kind"] = nccl::error_kind_name(error.kind);
    json["order"] = text_or_null(nccl::error_order_name(error.order));
    json["comm"] =
        instance == nullptr || instance->comm == NONE ? Json(nullptr) : Json(instance->comm);
    json["rank"] = instance == nullptr ? Json(nullptr) : Json(instance->record.rank);
    Json also = Json::array();
    for (const model::Index index : error.also)
        also.push_back(
            {{"comm", nccl.instances[index].comm}, {"rank", nccl.instances[index].record.rank}});
    json["also"] = std::move(also);
    json["waiting_ranks"] = error.waiting;
    json["peer_rank"] = peer < 0 ? Json(nullptr) : Json(peer);
    json["channels"] = error.link == NONE ? Json::array() : Json(nccl.links[error.link].channels);
    Json qps = Json::array();
    for (const model::Index index : error.qps) {
        const model::Qp &qp = model.qps[index];
        const model::Index link = index < nccl.qps.size() ? nccl.qps[index].link : NONE;
        const std::int32_t peer_of_qp = link == NONE ? -1 : nccl.links[link].peer;
        qps.push_back(
            {{"device", qp.device == NONE ? Json(nullptr) : Json(model.devices[qp.device].name)},
             {"qpn", qp.key.qpn},
             {"peer_rank", peer_of_qp < 0 ? Json(nullptr) : Json(peer_of_qp)},
             {"remote_host", text_or_null(qp.remote_host)}});
    }
    json["qps"] = std::move(qps);
    json["destroyed"] = error.is_destroyed;
    json["event"] =
        error.event ? text_or_null(capture::async_event_name(*error.event)) : Json(nullptr);
    json["operation"] = operation_json(nccl, error);
    json["result"] = error.result == 0 ? Json(nullptr) : Json(nccl::result_text(error.result));
    json["wc_status"] =
        error.status ? text_or_null(nccl::wc_status_name(*error.status)) : Json(nullptr);
    json["text"] = text_or_null(error.text);
    json["file"] = text_or_null(error.file);
    json["line"] = number_or_null(error.line);
    json["tid"] = number_or_null(error.tid);
    json["what"] = nccl::error_text(model, error);
    return json;
}

} // namespace collwire::report
