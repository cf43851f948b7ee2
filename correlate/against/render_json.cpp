// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include <nlohmann/json.hpp>

#include "base/foreign_text.h"
#include "correlate/against/render.h"

namespace collwire::against {
namespace {

using Json = nlohmann::ordered_json;

constexpr int SCHEMA_VERSION = 1;

template <typename T> Json or_null(const std::optional<T> &value) {
    return value ? Json(*value) : Json(nullptr);
}

Json text_or_null(const std::string &text) {
    return text.empty() ? Json(nullptr) : Json(text);
}

Json ns_or_null(double ns, std::size_t n) {
    return n == 0 ? Json(nullptr) : Json(static_cast<std::uint64_t>(std::llround(ns)));
}

Json run_json(const RunSummary &run) {
    return {{"begin_realtime_ns", or_null(run.begin_ns)},
            {"end_realtime_ns", or_null(run.end_ns)},
            {"hosts", run.hosts},
            {"ranks_captured", run.ranks_captured},
            {"n_ranks", run.n_ranks},
            {"communicators", run.communicators},
            {"operations", run.operations},
            {"nccl_versions", run.nccl_versions},
            {"lost_records", run.lost_records}};
}

Json difference_json(const Difference &one) {
    return {{"topic", topic_name(one.topic)},
            {"code", one.code},
            {"sentence", one.sentence},
            {"comms", one.comms},
            {"ratio", or_null(one.ratio)},
            {"ratio_least", or_null(one.ratio_least)},
            {"ratio_most", or_null(one.ratio_most)},
            {"since_realtime_ns", or_null(one.since_ns)}};
}

Json side_json(const OperationSide &side) {
    Json choices = Json::array();
    for (const auto &[choice, count] : side.choices)
        choices.push_back(
            {{"algorithm", text_or_null(choice.algorithm)},
             {"protocol", text_or_null(choice.protocol)},
             {"channels", choice.channels == 0 ? Json(nullptr) : Json(choice.channels)},
             {"count", count}});
    const auto word = [](const auto &vocabulary, auto value) {
        return Json(vocabulary[static_cast<std::size_t>(value)]);
    };
    return {{"count", side.count},
            {"partial", side.partial},
            {"choices", std::move(choices)},
            {"certainty", side.count == 0
                              ? Json(nullptr)
                              : word(rows::Vocabulary<rows::Certainty>::words, side.certainty)},
            {"byte_source", side.byte_source
                                ? word(rows::Vocabulary<rows::ByteSource>::words, *side.byte_source)
                                : Json(nullptr)},
            {"tx_payload_bytes", or_null(side.payload_bytes)}};
}

Json metric_json(Metric metric, const TimeComparison &of) {
    return {{"metric", metric_name(metric)},
            {"state", state_name(of.state)},
            {"a_n", of.n_a},
            {"b_n", of.n_b},
            {"a_usual_ns", ns_or_null(of.usual_a, of.n_a)},
            {"b_usual_ns", ns_or_null(of.usual_b, of.n_b)},
            {"a_median_ns", ns_or_null(of.median_a, of.n_a)},
            {"b_median_ns", ns_or_null(of.median_b, of.n_b)},
            {"a_p95_ns", ns_or_null(of.p95_a, of.n_a)},
            {"b_p95_ns", ns_or_null(of.p95_b, of.n_b)},
            {"is_bound", of.is_bound ? 1 : 0},
            {"ratio", or_null(of.ratio)},
            {"ratio_least", or_null(of.ratio_least)},
            {"ratio_most", or_null(of.ratio_most)},
            {"since_realtime_ns", or_null(of.since_ns)}};
}

Json group_json(const Comparison &comparison, const OperationGroup &group) {
    const CommPair &pair = comparison.matches.pairs[group.pair];
    Json metrics = Json::array();
    for (const Metric metric : {Metric::Time, Metric::Spread, Metric::Transfer, Metric::Interval})
        if (metric != Metric::Interval || group.is_interval_compared)
            metrics.push_back(metric_json(metric, group.of(metric)));
    return {{"a_comm", pair.a},
            {"b_comm", pair.b},
            {"op", group.op},
            {"size_bytes", or_null(group.size_bytes)},
            {"size_class", group.is_size_class},
            {"a", side_json(group.a)},
            {"b", side_json(group.b)},
            {"metrics", std::move(metrics)}};
}

} // namespace

std::string render_json(const Comparison &comparison, std::string_view tool_version) {
    Json communicators = Json::array(), differences = Json::array(), operations = Json::array();
    for (const CommPair &pair : comparison.matches.pairs)
        communicators.push_back({{"a", pair.a},
                                 {"b", pair.b},
                                 {"name", text_or_null(pair.name)},
                                 {"a_guessed_role", text_or_null(pair.guessed_role_a)},
                                 {"b_guessed_role", text_or_null(pair.guessed_role_b)},
                                 {"matched_by", matched_by_name(pair.by)},
                                 {"a_n_ranks", pair.n_ranks_a},
                                 {"b_n_ranks", pair.n_ranks_b}});
    for (const Difference &one : comparison.differences)
        differences.push_back(difference_json(one));
    for (const OperationGroup &group : comparison.groups)
        operations.push_back(group_json(comparison, group));
    const Json document = {
        {"schema", "collwire-against"},
        {"schema_version", SCHEMA_VERSION},
        {"tool_version", tool_version},
        {"verdict",
         {{"code", verdict_name(comparison.verdict)}, {"sentence", comparison.sentence}}},
        {"runs", {{"a", run_json(comparison.a)}, {"b", run_json(comparison.b)}}},
        {"communicators", std::move(communicators)},
        {"unmatched_a", comparison.matches.only_a},
        {"unmatched_b", comparison.matches.only_b},
        {"differences", std::move(differences)},
        {"operations", std::move(operations)},
        {"not_compared", comparison.not_compared}};
    return escaped_json(document.dump(1, ' ', false, Json::error_handler_t::replace)) + "\n";
}

} // namespace collwire::against
