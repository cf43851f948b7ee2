// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/resolve.h"

#include <algorithm>

#include "collwire/nccl_launch_records.h"
#include "collwire/node_records.h"
#include "correlate/nccl/account_messages.h"
#include "correlate/nccl/assumed_launches.h"
#include "correlate/nccl/clock_order.h"
#include "correlate/nccl/late_ranks.h"
#include "correlate/nccl/plugin_links.h"

namespace collwire::nccl {

void resolve(model::Model &model, const topology::Topology *topology) {
    NcclFacts &nccl = model.nccl;
    nccl.recorded = std::any_of(model.sessions.begin(), model.sessions.end(),
                                [](const model::Session &session) {
                                    return !session.excluded && (session.flags & CW_NODE_NCCL) != 0;
                                });
    find_instances(model);
    find_links(model, topology);
    for (model::Qp &qp : model.qps)
        qp.posts.reset(); // only sums of them are needed from here on
    read_shapes(model);
    give_plugins_queue_pairs(model);
    assume_launches(model);
    join_communicators(model);
    match_calls(model);
    align(model);
    make_operations(model);
    account_operations(model);
    account_sockets(model);
    account_derived(model);
    compare_messages(model);
    account_local(model);
    ClockOrderFinder clock_order(model);
    time_operations(model, clock_order);
    join_gpu(model);
    solve_node_clocks(model, clock_order);
    find_lateness(model);
    join_nvlink(model);
    find_findings(model);
    find_errors(model);
}

Index instance_at(const NcclFacts &nccl, Index session, std::uint32_t tgid, std::uint64_t address,
                  std::uint64_t time_ns) {
    const auto found = nccl.gathered.stream_at.find({address, session, tgid});
    if (found == nccl.gathered.stream_at.end())
        return NONE;
    // Sorted by stream, then by time.
    const auto after = std::upper_bound(
        nccl.instances.begin(), nccl.instances.end(), std::pair(found->second, time_ns),
        [](const std::pair<Index, std::uint64_t> &wanted, const Instance &instance) {
            return wanted < std::pair(instance.stream, instance.begin_ns);
        });
    if (after != nccl.instances.begin() && (after - 1)->stream == found->second)
        return static_cast<Index>(after - 1 - nccl.instances.begin());
    if (after != nccl.instances.end() && after->stream == found->second)
        return static_cast<Index>(after - nccl.instances.begin());
    return NONE;
}

namespace {

std::uint32_t call_of(const NcclFacts &nccl, const Instance &instance, const Launch &launch,
                      std::uint32_t task) {
    return task < launch.n_tasks ? nccl.task_calls[instance.stream][launch.first_task + task]
                                 : NONE;
}

std::uint32_t replay_of(const Launch &launch) {
    return (launch.flags & CW_NCCL_LAUNCH_GRAPH) != 0 ? launch.replay : 0;
}

} // namespace

std::pair<bool, Index> operation_of(const NcclFacts &nccl, const Instance &instance,
                                    const Launch &launch, std::uint32_t task) {
    const std::uint32_t call = call_of(nccl, instance, launch, task);
    if (call == NONE)
        return {false, NONE};
    const CallJoin &join = nccl.call_joins[instance.stream][call];
    const std::uint32_t replay = replay_of(launch);
    if (join.operation == NONE || replay >= join.launches)
        return {false, NONE};
    return {is_p2p(nccl.gathered.streams[instance.stream].calls[call].func),
            join.operation + replay};
}

bool is_left_out(const NcclFacts &nccl, const Instance &instance, const Launch &launch,
                 std::uint32_t task) {
    const std::uint32_t call = call_of(nccl, instance, launch, task);
    if (call == NONE)
        return false;
    const CallJoin &join = nccl.call_joins[instance.stream][call];
    return join.operation != NONE && replay_of(launch) >= join.launches;
}

Rung rung_of_call(const NcclFacts &nccl, const Instance &instance, const Launch &launch,
                  std::uint32_t call) {
    const bool may_be_of_another =
        launch.time_ns >=
            std::min(instance.calls_whole_until_ns, instance.launches_whole_until_ns) ||
        (launch.flags & (CW_NCCL_LAUNCH_TRUNCATED | CW_NCCL_LAUNCH_FAULT)) != 0;
    return std::min(nccl.call_joins[instance.stream][call].rung,
                    may_be_of_another ? Rung::Inferred : Rung::Exact);
}

bool is_p2p(std::uint8_t func) {
    return func == CW_NCCL_SEND || func == CW_NCCL_RECV;
}

bool is_collective(std::uint8_t func) {
    return func <= CW_NCCL_ALL_REDUCE ||
           (func >= CW_NCCL_ALL_TO_ALL && func <= CW_NCCL_ALL_GATHER_V);
}

bool is_made_of_parts(std::uint8_t func) {
    return func >= CW_NCCL_ALL_TO_ALL && func <= CW_NCCL_GATHER;
}

bool is_failed(const Call &call) {
    return (call.flags & CW_NCCL_CALL_FAILED) != 0;
}

bool never_launches(const Call &call, const Instance &instance) {
    return is_failed(call) || (call.count == 0 && !is_p2p(call.func)) ||
           instance.record.n_ranks <= 1 || (is_p2p(call.func) && call.root == instance.record.rank);
}

bool is_counted_by_nccl(const Call &call) {
    return call.func <= CW_NCCL_ALL_REDUCE && call.count != 0 && !is_failed(call);
}

bool is_grouped_broadcast(const NcclFacts &nccl, const Instance &instance, std::uint32_t call) {
    const CommStream &stream = nccl.gathered.streams[instance.stream];
    const std::uint32_t launch = nccl.call_joins[instance.stream].launch(call);
    if (stream.calls[call].func != CW_NCCL_BROADCAST || launch == NONE)
        return false;
    const Index shape = stream.launches[launch].shape_index;
    return shape != NONE && nccl.shapes[shape].func == CW_NCCL_ALL_GATHER_V;
}

void join_call(CallJoins &joins, std::uint32_t call, std::uint32_t launch, Rung rung,
               std::uint32_t launches) {
    CallJoin join = joins[call];
    if (join.launch == NONE) {
        join.launch = launch;
        join.rung = rung;
    }
    join.rung = std::min(join.rung, rung);
    join.launches = std::max(join.launches, launches);
    joins.set(call, join);
}

bool is_same_rank(const Instance &a, const Instance &b) {
    return a.record.rank == b.record.rank && a.host == b.host && a.session != b.session &&
           a.record.tgid == b.record.tgid && a.record.comm == b.record.comm &&
           a.record.start_boottime_ns == b.record.start_boottime_ns;
}

} // namespace collwire::nccl
