// SPDX-License-Identifier: Apache-2.0
#include "correlate/find/render.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/foreign_text.h"
#include "correlate/nccl/describe.h"
#include "correlate/report/job_lines.h"
#include "correlate/report/units.h"
#include "correlate/report/window_text.h"
#include "correlate/roles/label.h"

namespace collwire::find {
namespace {

using Json = nlohmann::ordered_json;
using nccl::Operation;

constexpr int SCHEMA_VERSION = 1;
constexpr std::size_t MOST_NAMED = 16;
constexpr std::size_t MOST_ARRIVALS = 16;

const Operation &operation_of(const model::Model &model, const FoundOperation &found) {
    return found.is_pair ? model.nccl.p2p[found.operation]
                         : model.nccl.collectives[found.operation];
}

std::string line_text(const WatchdogLine &line) {
    std::string text = line.op_type.empty() ? "an operation" : line.op_type;
    if (line.seq)
        text += fmt::format(", number {} of its process group", *line.seq);
    if (!line.group.empty())
        text += fmt::format(" ({})", line.group);
    if (line.rank)
        text += fmt::format(", rank {} in the group", *line.rank);
    if (line.global_rank)
        text += fmt::format(", rank {} of the job", *line.global_rank);
    if (line.numel_in)
        text += fmt::format(", {} elements in", report::grouped(*line.numel_in));
    if (line.numel_out)
        text += fmt::format(", {} out", report::grouped(*line.numel_out));
    return text + (line.is_unfinished ? ", not ended" : "");
}

std::string ranks_text(const std::vector<std::int32_t> &ranks) {
    std::string text;
    for (std::size_t i = 0; i < std::min(ranks.size(), MOST_NAMED); ++i)
        text += fmt::format("{}{}", i == 0 ? "" : ", ", ranks[i]);
    if (ranks.size() > MOST_NAMED)
        text += fmt::format(" and {} more", ranks.size() - MOST_NAMED);
    return text;
}

template <typename Has>
std::vector<std::int32_t> ranks_where(const FoundOperation &found, Has has) {
    std::vector<std::int32_t> ranks;
    for (const RankState &state : found.ranks)
        if (has(state))
            ranks.push_back(state.rank);
    return ranks;
}

template <typename Has>
std::string done_text(const FoundOperation &found, std::size_t of, const Has &has) {
    const auto done = ranks_where(found, has);
    const auto open = ranks_where(found, [&](const RankState &state) { return !has(state); });
    std::string text = fmt::format("{} of {} ranks", done.size(), of);
    return open.empty() ? text : text + fmt::format("; not rank {}", ranks_text(open));
}

std::string title_of(const model::Model &model, const FoundOperation &found) {
    const Operation &operation = operation_of(model, found);
    const nccl::Communicator &comm = model.nccl.communicators[found.communicator];
    const model::Known size = nccl::size_bytes(operation);
    std::string what =
        found.is_pair
            ? fmt::format("send and receive, rank {} to {}, number {} of this pair",
                          operation.source, operation.destination, operation.seq)
            : fmt::format("{}, operation {}{}", nccl::func_text(operation.func), operation.seq,
                          operation.seq_base < nccl::SeqBase::Launched ? " of those that were read"
                                                                       : "");
    const std::string label =
        comm.name.empty() ? roles::mark_of(found.guessed_role) : report::printable(comm.name);
    return fmt::format("{}{}{} ({} ranks): {}, {}", label, label.empty() ? "" : " ",
                       nccl::hash_text(comm.hash), comm.n_ranks, what,
                       size ? report::human_bytes(*size)
                            : fmt::format("{} elements", report::grouped(operation.count)));
}

std::string bytes_text(const Operation &operation) {
    if (!operation.has(nccl::OPERATION_PAYLOAD_KNOWN))
        return "n/a";
    return fmt::format("{} payload on the network{}", report::exact_bytes(operation.payload_bytes),
                       operation.has(nccl::OPERATION_PARTIAL) ? ", as far as counted (partial)"
                                                              : "");
}

std::string after_text(const RankState &state) {
    if (state.after_first_ns)
        return report::short_duration(*state.after_first_ns) + " after the first";
    return state.after_first_at_most_ns
               ? fmt::format("within clock error of the first (<= {})",
                             report::short_duration(*state.after_first_at_most_ns))
               : "order not known: the clocks of the hosts are not calibrated";
}

void put_arrivals(const FoundOperation &found, std::string &text) {
    std::vector<const RankState *> arrived;
    for (const RankState &state : found.ranks)
        if (state.called_ns != 0)
            arrived.push_back(&state);
    if (arrived.empty())
        return;
    std::ranges::stable_sort(arrived, {}, &RankState::called_ns);
    text += "    arrivals:";
    for (std::size_t i = 0; i < arrived.size(); ++i) {
        if (arrived.size() > MOST_ARRIVALS && i == MOST_ARRIVALS / 2) {
            text += fmt::format("\n      {} more", arrived.size() - MOST_ARRIVALS);
            i = arrived.size() - MOST_ARRIVALS / 2;
        }
        text += fmt::format("\n      rank {} ({}, pid {}) at {} UTC, {}", arrived[i]->rank,
                            report::printable(arrived[i]->host), arrived[i]->pid,
                            report::utc_time(arrived[i]->called_ns), after_text(*arrived[i]));
    }
    text += '\n';
}

void put(const model::Model &model, const FoundOperation &found, std::string &text) {
    const nccl::Communicator &comm = model.nccl.communicators[found.communicator];
    const std::size_t of = found.is_pair ? 2 : static_cast<std::size_t>(std::max(comm.n_ranks, 0));
    text += fmt::format("\n  {}\n", title_of(model, found));
    for (const std::string &reason : found.reasons)
        text += fmt::format("    fits: {}\n", report::printable(reason));
    text +=
        fmt::format("    called:   {}\n",
                    done_text(found, of, [](const RankState &state) { return state.has_called; }));
    text += fmt::format("    launched: {}\n", done_text(found, of, [](const RankState &state) {
                            return state.has_launched;
                        }));
    const auto unknown =
        ranks_where(found, [](const RankState &state) { return state.ended == Ended::Unknown; });
    const auto ended =
        ranks_where(found, [](const RankState &state) { return state.ended == Ended::Yes; });
    text += fmt::format("    ended:    {} of {} ranks{}\n", ended.size(), of,
                        unknown.empty() ? ""
                                        : fmt::format("; not known of rank {}: nothing of it uses "
                                                      "the network",
                                                      ranks_text(unknown)));
    if (!found.without_capture.empty())
        text += fmt::format("    in no capture: rank {}\n", ranks_text(found.without_capture));
    text += fmt::format("    bytes:    {}\n", bytes_text(operation_of(model, found)));
    put_arrivals(found, text);
}

std::string_view position_name(Position position) {
    switch (position) {
    case Position::Equal:
        return "equal";
    case Position::Later:
        return "later";
    case Position::Earlier:
        return "earlier";
    case Position::NotCompared:
        break;
    }
    return "not_compared";
}

Json ended_json(Ended ended) {
    return ended == Ended::Unknown ? Json(nullptr) : Json(ended == Ended::Yes);
}

Json number_or_null(const std::optional<std::uint64_t> &value) {
    return value ? Json(*value) : Json(nullptr);
}

Json found_json(const model::Model &model, const FoundOperation &found) {
    const Operation &operation = operation_of(model, found);
    const nccl::Communicator &comm = model.nccl.communicators[found.communicator];
    Json ranks = Json::array();
    for (const RankState &state : found.ranks)
        ranks.push_back(
            {{"rank", state.rank},
             {"host", state.host},
             {"pid", state.pid},
             {"called", state.has_called},
             {"launched", state.has_launched},
             {"ended", ended_json(state.ended)},
             {"called_realtime_ns", state.called_ns == 0 ? Json(nullptr) : Json(state.called_ns)},
             {"after_first_ns", number_or_null(state.after_first_ns)},
             {"launched_realtime_ns",
              state.launched_ns == 0 ? Json(nullptr) : Json(state.launched_ns)}});
    const model::Known size = nccl::size_bytes(operation);
    return {{"communicator", nccl::hash_text(comm.hash)},
            {"communicator_name", comm.name},
            {"communicator_guessed_role",
             found.guessed_role.empty() ? Json(nullptr) : Json(found.guessed_role)},
            {"n_ranks", comm.n_ranks},
            {"p2p", found.is_pair},
            {"op", found.is_pair ? "SendRecv" : nccl::func_text(operation.func)},
            {"seq", operation.seq},
            {"seq_base", nccl::seq_base_name(operation.seq_base)},
            {"src_rank", found.is_pair ? Json(operation.source) : Json(nullptr)},
            {"dst_rank", found.is_pair ? Json(operation.destination) : Json(nullptr)},
            {"count", operation.count},
            {"size_bytes", size ? Json(*size) : Json(nullptr)},
            {"tx_payload_bytes", operation.has(nccl::OPERATION_PAYLOAD_KNOWN)
                                     ? Json(operation.payload_bytes)
                                     : Json(nullptr)},
            {"partial", operation.has(nccl::OPERATION_PARTIAL)},
            {"position", position_name(found.position)},
            {"reasons", found.reasons},
            {"ranks", std::move(ranks)},
            {"ranks_without_capture", found.without_capture}};
}

} // namespace

std::string render_text(const model::Model &model, const WatchdogLine &line,
                        const FindResult &result) {
    std::string text =
        fmt::format("collwire report --find: {}\n", report::printable(line_text(line)));
    for (const std::string &job : report::job_lines(model::find_jobs(model)))
        text += "  " + job + "\n";
    if (model.window)
        for (const std::string &window : report::window_lines(*model.window))
            text += "  " + window + "\n";
    const std::size_t n = result.operations.size() + result.more;
    if (n == 0)
        return text + fmt::format("\n  no operation can be it: {}\n", result.none);
    text += n == 1 ? "\n  1 operation can be it\n"
                   : fmt::format("\n  {} operations can be it, those in the same place first\n", n);
    for (const FoundOperation &found : result.operations)
        put(model, found, text);
    if (result.more != 0)
        text += fmt::format("\n  and {} more\n", report::grouped(result.more));
    return text;
}

std::string render_json(const model::Model &model, const WatchdogLine &line,
                        const FindResult &result, std::string_view tool_version) {
    const auto number = [](const auto &value) { return value ? Json(*value) : Json(nullptr); };
    Json operations = Json::array();
    for (const FoundOperation &found : result.operations)
        operations.push_back(found_json(model, found));
    const Json document = {
        {"schema", "collwire-find"},
        {"schema_version", SCHEMA_VERSION},
        {"tool_version", tool_version},
        {"line",
         {{"op_type", line.op_type.empty() ? Json(nullptr) : Json(line.op_type)},
          {"seq", number(line.seq)},
          {"rank", number(line.rank)},
          {"global_rank", number(line.global_rank)},
          {"numel_in", number(line.numel_in)},
          {"numel_out", number(line.numel_out)},
          {"group", line.group.empty() ? Json(nullptr) : Json(line.group)},
          {"unfinished", line.is_unfinished}}},
        {"selected", model.window ? report::window_facts_json(*model.window) : Json(nullptr)},
        {"operations", std::move(operations)},
        {"more", result.more},
        {"none", result.none.empty() ? Json(nullptr) : Json(result.none)}};
    return escaped_json(document.dump(1, ' ', false, Json::error_handler_t::replace)) + "\n";
}

} // namespace collwire::find
