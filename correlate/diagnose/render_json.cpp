// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/foreign_text.h"
#include "correlate/diagnose/render.h"
#include "correlate/report/job_lines.h"
#include "correlate/report/window_text.h"
#include "correlate/verdict/render.h"

namespace collwire::diagnose {
namespace {

using Json = nlohmann::ordered_json;

Json text_or_null(const std::string &text) {
    return text.empty() ? Json(nullptr) : Json(text);
}

// Null: no inspection has the process.
void add_place(const inspect::Process *process, Json &json) {
    static const inspect::Process none;
    const inspect::Process &of = process == nullptr ? none : *process;
    json["namespace_pid"] = of.namespace_pid == 0 ? Json(nullptr) : Json(of.namespace_pid);
    json["slurm_job"] = text_or_null(of.slurm_job);
    json["slurm_step"] = text_or_null(of.slurm_step);
    json["pod_uid"] = text_or_null(of.pod_uid);
    json["container_id"] = text_or_null(of.container_id);
}

Json rank_json(const Rank &rank) {
    Json json = {{"rank", rank.rank},
                 {"host", rank.host},
                 {"pid", rank.pid},
                 {"realtime_ns", rank.realtime_ns},
                 {"verdict", inspect::standing_name(rank.standing.standing)},
                 {"verdict_text", inspect::sentence_of(rank.standing)},
                 {"launched", rank.comm->launched ? Json(*rank.comm->launched) : Json(nullptr)}};
    add_place(rank.process, json);
    return json;
}

Json cause_json(const Communicator &comm, const Cause &cause) {
    const Rank *rank = find_rank(comm, cause.rank);
    Json json = {{"kind", kind_name(cause.kind)},
                 {"rank", cause.rank < 0 ? Json(nullptr) : Json(cause.rank)},
                 {"peer_rank", cause.peer ? Json(*cause.peer) : Json(nullptr)},
                 {"host", rank == nullptr ? Json(nullptr) : Json(rank->host)},
                 {"pid", rank == nullptr ? Json(nullptr) : Json(rank->pid)},
                 {"text", cause.sentence},
                 {"evidence", cause.evidence},
                 {"circle", cause.circle ? Json(*cause.circle) : Json(nullptr)}};
    add_place(rank == nullptr ? nullptr : rank->process, json);
    return json;
}

Json hash_json(std::uint64_t hash) {
    return hash == 0 ? Json(nullptr) : Json(fmt::format("{:#018x}", hash));
}

Json unready_json(const UnreadyCommunicator &comm) {
    Json ranks = Json::array(), causes = Json::array();
    for (const UnreadyRank &rank : comm.ranks) {
        ranks.push_back({{"rank", rank.rank < 0 ? Json(nullptr) : Json(rank.rank)},
                         {"host", rank.host},
                         {"pid", rank.pid},
                         {"phase", inspect::phase_name(rank.comm->phase)},
                         {"phase_text", inspect::sentence_of(*rank.comm)}});
        add_place(rank.process, ranks.back());
    }
    for (const Cause &cause : comm.causes)
        causes.push_back({{"kind", kind_name(cause.kind)},
                          {"rank", cause.rank < 0 ? Json(nullptr) : Json(cause.rank)},
                          {"text", cause.sentence},
                          {"evidence", cause.evidence}});
    return {{"hash", hash_json(comm.hash)},
            {"magic", hash_json(comm.magic)},
            {"n_ranks", comm.n_ranks == 0 ? Json(nullptr) : Json(comm.n_ranks)},
            {"parent_hash", hash_json(comm.parent_hash.value_or(0))},
            {"ready_ranks", comm.ready},
            {"absent_ranks", comm.absent},
            {"awaited_ranks", comm.awaited},
            {"causes", std::move(causes)},
            {"ranks", std::move(ranks)}};
}

Json circle_json(const Circle &circle) {
    Json steps = Json::array();
    for (const Circle::Step &step : circle.steps)
        steps.push_back({{"communicator", hash_json(step.hash)},
                         {"rank", step.rank},
                         {"awaits_rank", step.awaits},
                         {"host", step.host},
                         {"pid", step.pid},
                         {"text", step.sentence}});
    return {{"text", circle.sentence}, {"steps", std::move(steps)}, {"orders", circle.orders}};
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
            {"guessed_role", text_or_null(comm.guessed_role)},
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
    Json unready = Json::array(), circles = Json::array();
    for (const UnreadyCommunicator &comm : diagnosis.unready)
        unready.push_back(unready_json(comm));
    for (const Circle &circle : diagnosis.circles)
        circles.push_back(circle_json(circle));
    const Json document = {
        {"schema", "collwire-diagnose"},
        {"schema_version", diagnose_schema_version},
        {"tool_version", tool_version},
        {"files", diagnosis.n_witnesses},
        {"warnings", diagnosis.warnings},
        {"unready", std::move(unready)},
        {"circles", std::move(circles)},
        {"communicators", std::move(comms)},
        {"captures", diagnosis.n_captures},
        {"verdicts", verdict::to_json(diagnosis.verdicts)},
        {"jobs", report::jobs_json(diagnosis.jobs)},
        {"needed_model",
         diagnosis.needed_model.empty() ? Json(nullptr) : Json(diagnosis.needed_model)},
        {"read", diagnosis.is_tail  ? "tail"
                 : diagnosis.window ? "selected"
                                    : "whole"},
        {"selected",
         diagnosis.window ? Json(report::window_facts_json(*diagnosis.window)) : Json()}};
    // Names come from files: bytes that are not UTF-8 must not throw.
    return escaped_json(document.dump(1, ' ', false, Json::error_handler_t::replace)) + "\n";
}

} // namespace collwire::diagnose
