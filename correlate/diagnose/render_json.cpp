// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "correlate/diagnose/render.h"

namespace collwire::diagnose {
namespace {

using Json = nlohmann::ordered_json;

Json rank_json(const Rank &rank) {
    return {{"rank", rank.rank},
            {"host", rank.host},
            {"pid", rank.pid},
            {"realtime_ns", rank.realtime_ns},
            {"verdict", inspect::standing_name(rank.standing.standing)},
            {"verdict_text", inspect::sentence_of(rank.standing)},
            {"launched", rank.comm->launched ? Json(*rank.comm->launched) : Json(nullptr)}};
}

Json cause_json(const Communicator &comm, const Cause &cause) {
    const Rank *rank = find_rank(comm, cause.rank);
    return {{"kind", kind_name(cause.kind)},
            {"rank", cause.rank < 0 ? Json(nullptr) : Json(cause.rank)},
            {"peer_rank", cause.peer ? Json(*cause.peer) : Json(nullptr)},
            {"host", rank == nullptr ? Json(nullptr) : Json(rank->host)},
            {"pid", rank == nullptr ? Json(nullptr) : Json(rank->pid)},
            {"text", cause.sentence},
            {"evidence", cause.evidence}};
}

Json communicator_json(const Communicator &comm) {
    Json ranks = Json::array(), behind = Json::array(), causes = Json::array();
    for (const Rank &rank : comm.ranks)
        ranks.push_back(rank_json(rank));
    for (const Behind &one : comm.behind)
        behind.push_back({{"rank", one.rank}, {"operations", one.by}});
    for (const Cause &cause : comm.causes)
        causes.push_back(cause_json(comm, cause));
    return {{"hash", fmt::format("{:#018x}", comm.hash)},
            {"name", comm.name.empty() ? Json(nullptr) : Json(comm.name)},
            {"n_ranks", comm.n_ranks},
            {"stuck", comm.is_stuck},
            {"ambiguous", comm.is_ambiguous},
            {"launched", comm.most_launched ? Json(*comm.most_launched) : Json(nullptr)},
            {"missing_ranks", comm.missing},
            {"behind", std::move(behind)},
            {"causes", std::move(causes)},
            {"ranks", std::move(ranks)}};
}

} // namespace

std::string render_json(const Diagnosis &diagnosis, std::string_view tool_version) {
    Json comms = Json::array();
    for (const Communicator &comm : diagnosis.communicators)
        comms.push_back(communicator_json(comm));
    const Json document = {
        {"schema", "collwire-diagnose"},  {"schema_version", diagnose_schema_version},
        {"tool_version", tool_version},   {"files", diagnosis.n_witnesses},
        {"warnings", diagnosis.warnings}, {"communicators", std::move(comms)}};
    // Names come from files: bytes that are not UTF-8 must not throw.
    return document.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

} // namespace collwire::diagnose
