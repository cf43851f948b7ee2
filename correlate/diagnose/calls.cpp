// SPDX-License-Identifier: Apache-2.0
#include "correlate/diagnose/calls.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "correlate/diagnose/causes.h"
#include "correlate/diagnose/evidence.h"

namespace collwire::diagnose {
namespace {

using inspect::Standing;

// Every rank has to call these.
constexpr std::array<std::string_view, 8> COLLECTIVES{
    "ncclAllReduce",     "ncclBroadcast", "ncclReduce", "ncclAllGather",
    "ncclReduceScatter", "ncclAlltoAll",  "ncclGather", "ncclScatter"};

Cause cause_of_call(const Communicator &comm, const Rank &rank, const inspect::NcclCall &call) {
    Cause cause;
    cause.kind = Kind::Nccl;
    cause.rank = rank.rank;
    const bool is_pool = rank.proxy != nullptr && rank.proxy->is_pool_empty == true;
    cause.sentence = fmt::format(
        "{} waits inside NCCL, in {}{}", name_of(comm, rank.rank), function_text(call),
        is_pool ? ": its pool of proxy operations is empty, and its proxy returns none" : "");
    cause.evidence.push_back(call_text(call));
    if (rank.comm->graph_refs.value_or(0) > 0)
        cause.evidence.push_back(
            fmt::format("{} captured launch(es) of CUDA graphs still hold the communicator: "
                        "NCCL ends it when the graphs are destroyed",
                        *rank.comm->graph_refs));
    std::ranges::move(evidence_of(rank), std::back_inserter(cause.evidence));
    return cause;
}

// The others are in one collective, and none of them waits for its own proxy.
Cause cause_of_absence(const Communicator &comm, const Rank &rank, const inspect::NcclCall &call,
                       const std::set<std::int32_t> &waiting) {
    Cause cause = cause_of(comm, rank, waiting);
    cause.sentence = fmt::format(
        "{} has not called {}: {} {} in it", name_of(comm, rank.rank), function_text(call),
        numbers_text({waiting.begin(), waiting.end()}), waiting.size() == 1 ? "waits" : "wait");
    cause.evidence.emplace(cause.evidence.begin(),
                           call_text(call) + ", on " + name_of(comm, *waiting.begin()));
    return cause;
}

} // namespace

void find_waiting_calls(Communicator &comm) {
    if (comm.is_stuck)
        return;
    const bool moves = std::ranges::any_of(comm.ranks, [](const Rank &rank) {
        return rank.standing.standing != Standing::Idle || rank.comm->has_launched.value_or(false);
    });
    if (moves)
        return;
    std::vector<std::pair<const Rank *, const inspect::NcclCall *>> inside;
    std::vector<const Rank *> outside;
    std::set<std::int32_t> waiting;
    std::set<std::string_view> functions;
    bool is_pool = false;
    for (const Rank &rank : comm.ranks) {
        const inspect::NcclCall *call = call_of(rank);
        if (call == nullptr) {
            outside.push_back(&rank);
            continue;
        }
        inside.emplace_back(&rank, call);
        waiting.insert(rank.rank);
        functions.insert(call->function);
        is_pool = is_pool || (rank.proxy != nullptr && rank.proxy->is_pool_empty == true);
    }
    comm.is_stuck = !inside.empty();
    if (!comm.is_stuck)
        return;
    const bool in_one_collective =
        functions.size() == 1 && !is_pool &&
        std::ranges::find(COLLECTIVES, *functions.begin()) != COLLECTIVES.end();
    if (in_one_collective && outside.empty() && comm.missing.size() <= MOST_MISSING_NAMED)
        for (const std::int32_t rank : comm.missing)
            comm.causes.push_back(cause_of_missing(comm, rank, waiting));
    if (!comm.causes.empty())
        return;
    if (in_one_collective && !outside.empty() && outside.size() < inside.size()) {
        for (const Rank *rank : outside)
            comm.causes.push_back(cause_of_absence(comm, *rank, *inside.front().second, waiting));
        return;
    }
    for (const auto &[rank, call] : inside)
        comm.causes.push_back(cause_of_call(comm, *rank, *call));
    if (outside.empty())
        return;
    std::vector<std::int32_t> numbers;
    std::ranges::transform(outside, std::back_inserter(numbers), &Rank::rank);
    for (Cause &cause : comm.causes)
        cause.evidence.push_back(fmt::format("{} {} not in NCCL", numbers_text(numbers),
                                             numbers.size() == 1 ? "is" : "are"));
}

std::set<std::int32_t> ranks_held_up_in_calls(const Communicator &comm) {
    std::set<std::int32_t> inside;
    bool any_outside = false;
    for (const Rank &rank : comm.ranks) {
        if (rank.standing.standing != Standing::Idle || behind_by(comm, rank.rank) == 0)
            continue;
        if (call_of(rank) != nullptr)
            inside.insert(rank.rank);
        else
            any_outside = true;
    }
    return any_outside ? inside : std::set<std::int32_t>{};
}

} // namespace collwire::diagnose
