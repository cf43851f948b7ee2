// SPDX-License-Identifier: Apache-2.0
// Sends and receives of a node's ranks: how many each rank called with each other rank, and where
// the last ones are in NCCL's counts of steps.
#include <algorithm>
#include <set>
#include <tuple>

#include "collwire/nccl_launch_records.h"
#include "correlate/capture/nccl_names.h"
#include "correlate/model/counters.h"
#include "correlate/nccl/align_sequences.h"
#include "correlate/stream/node_standing.h"

namespace collwire::stream {
namespace {

// Calls of a rank that are remembered, of all its peers together, and of each of them.
constexpr std::size_t MOST_OF_RANK = 256, MOST_OF_PEER = 64, LEAST_OF_PEER = 4;

bool is_transfer(std::uint8_t func) {
    return func == CW_NCCL_SEND || func == CW_NCCL_RECV;
}

} // namespace

NodeStanding::PlanTasks &NodeStanding::tasks_of_plan(std::uint32_t tgid, std::uint64_t plan,
                                                     std::uint64_t launch_ns) {
    PlanTasks &tasks = plans_[{tgid, plan}];
    if (tasks.launch_ns != launch_ns)
        tasks = {launch_ns, 0, 0, {}};
    return tasks;
}

// Equal tasks may be in a launch several times. All launches of a shape are alike in that.
void NodeStanding::add_tasks(std::uint32_t tgid, PlanTasks &plan, std::uint32_t first,
                             std::span<const cw_nccl_task_ref> tasks) {
    for (std::uint32_t i = 0; i < tasks.size(); ++i)
        plan.ids.emplace_back(first + i, tasks[i].task);
    if (plan.shape == 0 || plan.ids.size() != plan.n_tasks)
        return;
    Shape &shape = shapes_[{tgid, plan.shape}];
    if (!shape.ids.empty())
        return;
    std::ranges::sort(plan.ids);
    for (const auto &[index, id] : plan.ids)
        shape.ids.push_back(id);
}

void NodeStanding::add_transfer(Live &live, const Call &call) const {
    const CallArguments &of = call.arguments;
    if (of.root == live.comm->rank)
        return; // both of its ends are here
    const Live::Peer peer{of.root, of.func == CW_NCCL_SEND};
    TransferCall transfer;
    transfer.realtime_ns = host_.realtime_ns(call.time_ns);
    transfer.count = of.count;
    transfer.datatype = of.datatype;
    live.transfers[peer].push_back(transfer);
    live.transfers_ns[peer].push_back(call.time_ns);
}

// Of two ranks, from launches: their transfers are simultaneous.
void NodeStanding::find_turns(Live &live) const {
    roles::RankWork &work = live.standing.work;
    std::uint64_t n_calls = 0, n_launched = 0;
    for (const auto *counts : {&work.sends, &work.receives})
        for (const auto &[peer, n] : *counts)
            n_calls += n;
    if (live.comm->n_ranks != 2 || n_calls == 0)
        return;
    roles::TurnCounter counter;
    const std::vector<Launch> &launches = places_.at(live.address).launches;
    for (std::size_t i = 0; i < launches.size(); ++i) {
        const auto shape = shapes_.find({live.address.first, launches[i].shape});
        if (launches[i].time_ns < live.begin_ns || shape == shapes_.end())
            continue;
        for (const std::uint8_t func : shape->second.funcs)
            if (is_transfer(func)) {
                counter.add(func == CW_NCCL_SEND, i);
                ++n_launched;
            }
    }
    if (n_launched >= n_calls)
        work.takes_turns = counter.takes_turns();
}

// The steps of the last launches with sends and receives are enough.
void NodeStanding::find_steps_from(Live &live) const {
    live.steps_from_ns = UINT64_MAX;
    std::size_t n = 0;
    const std::vector<Launch> &launches = places_.at(live.address).launches;
    for (auto launch = launches.rbegin(); launch != launches.rend() && n < MOST_OF_RANK; ++launch) {
        if (launch->time_ns < live.begin_ns)
            return;
        const auto shape = shapes_.find({live.address.first, launch->shape});
        if (shape == shapes_.end() || std::ranges::none_of(shape->second.funcs, is_transfer))
            continue;
        live.steps_from_ns = launch->time_ns;
        ++n;
    }
}

// From the last launch backwards: the last calls before it are those of its tasks.
void NodeStanding::put_steps(Live &live) const {
    std::map<Live::Peer, std::size_t> ends; // calls whose launch is not known yet
    for (const auto &[peer, calls] : live.transfers)
        ends[peer] = calls.size();
    const std::vector<Launch> &launches = places_.at(live.address).launches;
    for (auto launch = launches.rbegin(); launch != launches.rend(); ++launch) {
        if (launch->time_ns < live.steps_from_ns)
            return;
        const auto found = shapes_.find({live.address.first, launch->shape});
        if (found == shapes_.end())
            continue;
        const Shape &shape = found->second;
        if (std::ranges::none_of(shape.funcs, is_transfer))
            continue;
        if (shape.funcs.size() > 1 && shape.ids.size() != shape.funcs.size())
            return; // which of its tasks are equal is not known
        std::set<std::uint32_t> seen;
        for (std::size_t task = shape.funcs.size(); task-- > 0;) {
            if (!is_transfer(shape.funcs[task]) ||
                (!shape.ids.empty() && !seen.insert(shape.ids[task]).second))
                continue;
            const Live::Peer peer{shape.peers[task], shape.funcs[task] == CW_NCCL_SEND};
            const auto calls = live.transfers.find(peer);
            if (calls == live.transfers.end())
                continue;
            const std::vector<std::uint64_t> &times_ns = live.transfers_ns.at(peer);
            std::size_t &end = ends[peer];
            while (end > 0 && times_ns[end - 1] >= launch->time_ns)
                --end;
            if (end == 0)
                continue; // called before what was read
            TransferCall &call = calls->second[--end];
            for (std::uint32_t same = 0; same < shape.funcs.size(); ++same) {
                if (same != task && (shape.ids.empty() || shape.ids[same] != shape.ids[task]))
                    continue;
                const auto step = live.steps.find({&*launch, same});
                // Of several connections the one with the least number: both ends choose the same.
                if (step != live.steps.end() &&
                    (call.end_steps == 0 || step->second.connection < call.connection)) {
                    call.end_steps = step->second.end;
                    call.connection = step->second.connection;
                }
            }
        }
    }
}

void NodeStanding::put_transfers(Live &live) const {
    if (live.transfers.empty())
        return;
    const std::size_t most =
        std::clamp(MOST_OF_RANK / live.transfers.size(), LEAST_OF_PEER, MOST_OF_PEER);
    for (const auto &[peer, calls] : live.transfers) {
        PeerCalls &of_peer = live.standing.transfers.emplace_back();
        of_peer.peer = peer.first;
        of_peer.is_send = peer.second;
        of_peer.n = calls.size();
        of_peer.last.assign(calls.end() - static_cast<std::ptrdiff_t>(std::min(calls.size(), most)),
                            calls.end());
        if (live.is_created)
            of_peer.first_number = 0;
    }
}

// Pairs of ranks of this node, recorded from the middle on: they have one clock.
void NodeStanding::number_inside(std::vector<Live> &all) const {
    using Rank = std::tuple<std::uint64_t, std::int32_t, std::int32_t>; // hash, ranks, rank
    std::map<Rank, Live *> ranks;
    for (Live &live : all)
        ranks[{live.comm->comm_hash, live.comm->n_ranks, live.comm->rank}] = &live;
    const auto items_of = [](const Live &live, const Live::Peer &peer) {
        std::vector<nccl::SequenceItem> items;
        const std::vector<TransferCall> &calls = live.transfers.at(peer);
        items.reserve(calls.size());
        for (const TransferCall &call : calls)
            items.push_back({model::multiply_saturating(
                                 call.count, capture::nccl_datatype_bytes(call.datatype)),
                             call.realtime_ns});
        return items;
    };
    for (Live &live : all) {
        if (live.is_created)
            continue;
        for (PeerCalls &sends : live.standing.transfers) {
            const auto other = ranks.find({live.comm->comm_hash, live.comm->n_ranks, sends.peer});
            if (!sends.is_send || other == ranks.end() || other->second->is_created)
                continue;
            const Live::Peer back{live.comm->rank, false};
            Live &receiver = *other->second;
            if (!receiver.transfers.contains(back))
                continue;
            const auto aligned =
                nccl::align_sequences(items_of(live, {sends.peer, true}), items_of(receiver, back));
            const auto receives =
                std::ranges::find_if(receiver.standing.transfers, [&](const PeerCalls &one) {
                    return one.peer == back.first && !one.is_send;
                });
            if (!aligned || receives == receiver.standing.transfers.end())
                continue;
            // Receive i is send i + offset.
            const std::int64_t offset = aligned->offset;
            sends.first_number = static_cast<std::uint64_t>(std::max<std::int64_t>(0, -offset));
            receives->first_number = static_cast<std::uint64_t>(std::max<std::int64_t>(0, offset));
        }
    }
}

} // namespace collwire::stream
