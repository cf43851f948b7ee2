// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/clock_order.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "collwire/gpu_records.h"
#include "collwire/nccl_connection_records.h"
#include "collwire/nccl_launch_records.h"
#include "collwire/qp_records.h"
#include "collwire/record_kinds.h"
#include "correlate/nccl/parts.h"
#include "correlate/nccl/resolve.h"

namespace collwire::nccl {

using model::Model;
using model::Qp;

namespace {

// A launch of more operations than NCCL's pool holds hands some to the proxy before the probe.
constexpr std::uint32_t MOST_OPS_OF_A_LAUNCH = 256;
// Of one end of a connection, spread over its time.
constexpr std::size_t MOST_PASSAGES = 16'384;

// No rank completes its part before every rank has started.
bool waits_for_all(std::uint8_t func) {
    return func == CW_NCCL_ALL_REDUCE || func == CW_NCCL_ALL_GATHER ||
           func == CW_NCCL_REDUCE_SCATTER;
}

std::uint64_t created_ns(const Qp &qp) {
    for (const model::StateChange &change : qp.states)
        if (change.kind == CW_KIND_QP_CREATE)
            return change.time_ns;
    return 0;
}

bool has_one_peer(const Qp &qp) {
    return qp.peer != NONE && !qp.peer_in_parts && !qp.had_several_peers && qp.readdressed_ns == 0;
}

} // namespace

ClockOrderFinder::ClockOrderFinder(const Model &model)
    : model_(model), nccl_(model.nccl),
      link_of_connection_(model.nccl.gathered.connections.size(), NONE),
      end_of_link_(model.nccl.links.size(), NONE) {
    if (model.hosts.size() < 2)
        return;
    for (Index link = 0; link < nccl_.links.size(); ++link)
        for (const Index connection : nccl_.links[link].connections)
            link_of_connection_[connection] = link;
    pair_connections();
}

// All recordings of it are of the same queue pairs or sockets.
bool ClockOrderFinder::is_one_connection(Index link) const {
    const Link &of = nccl_.links[link];
    if (of.connections.empty() || of.is_assumed || of.is_mirrored || of.is_by_bytes ||
        of.rung != Rung::Exact)
        return false;
    const GatheredConnection &first = nccl_.gathered.connections[of.connections.front()];
    const auto all =
        nccl_.gathered.connections_at.find({first.head.connection, first.session, first.head.tgid});
    return all != nccl_.gathered.connections_at.end() &&
           std::all_of(all->second.begin(), all->second.end(),
                       [&](Index other) { return link_of_connection_[other] == link; }) &&
           std::all_of(of.connections.begin(), of.connections.end(), [&](Index other) {
               return nccl_.gathered.connections[other].head.connection == first.head.connection;
           });
}

Index ClockOrderFinder::link_at_other_end(const Link &link) const {
    Index found = NONE;
    const auto take = [&](Index other) {
        if (found != NONE && other != found)
            return false;
        found = other;
        return other != NONE;
    };
    for (const Index index : link.qps) {
        if (nccl_.qps[index].role == Role::Flush) // between two of the receiver's own
            continue;
        const Qp &qp = model_.qps[index];
        if (!has_one_peer(qp) || !take(nccl_.qps[qp.peer].link))
            return NONE;
    }
    for (const Index index : link.sockets) {
        const Index peer = nccl_.sockets[index].peer;
        if (peer == NONE || !take(nccl_.sockets[peer].link))
            return NONE;
    }
    return found;
}

void ClockOrderFinder::pair_connections() {
    const auto host_of = [&](Index link) {
        return model_.sessions[nccl_.links[link].session].host;
    };
    for (Index link = 0; link < nccl_.links.size(); ++link) {
        const Link &send = nccl_.links[link];
        if (!send.is_send() || send.session == NONE || !is_one_connection(link))
            continue;
        const Index other = link_at_other_end(send);
        if (other == NONE || nccl_.links[other].is_send() || end_of_link_[other] != NONE ||
            !is_one_connection(other) || link_at_other_end(nccl_.links[other]) != link ||
            host_of(link) == host_of(other))
            continue;
        const bool is_ib = send.transport == CW_NCCL_TRANSPORT_IB;
        const auto at = static_cast<Index>(ends_.size());
        end_of_link_[link] = at;
        end_of_link_[other] = at + 1;
        ends_.push_back({host_of(link), at + 1, is_ib, {}, 0, 0});
        ends_.push_back({host_of(other), NONE, is_ib, {}, 0, 0});
    }
}

void ClockOrderFinder::add(const OpVisit &of, const OperationPlace &operation, const OpTime &time) {
    const Launch &launch = of.launch;
    const ShapeOp &op = of.op;
    const Index link = op.connection == NONE ? NONE : link_of_connection_[op.connection];
    if (link == NONE || end_of_link_[link] == NONE || time.end_steps == 0 || op.is_continued)
        return;
    End &end = ends_[end_of_link_[link]];
    const bool is_measured = time.known == EndKnown::Measured;
    Passage passage{time.base_steps, time.end_steps, 0, is_measured ? time.end_ns : time.before_ns};
    // It starts after its launch, and when the operation before it on the connection is complete.
    if (launch.n_ops <= MOST_OPS_OF_A_LAUNCH)
        passage.started_ns = launch.time_ns;
    if (passage.started_ns != 0 || time.begin_ns != 0)
        passage.started_ns = std::max({passage.started_ns, time.begin_ns, end.last_incomplete_ns});
    end.last_incomplete_ns = is_measured ? time.end_ns : time.after_ns;
    keep(end, passage);
    add_to_ring(operation, op.channel, end.host, nccl_.links[link].is_send(), passage);
}

void ClockOrderFinder::keep(End &end, const Passage &passage) {
    const auto is_kept = [&](const Passage &one) {
        constexpr std::uint64_t GOLDEN_RATIO = 0x9e3779b97f4a7c15;
        return (one.end_steps * GOLDEN_RATIO >> 32U & ((std::uint64_t{1} << end.thinned) - 1)) == 0;
    };
    if (!is_kept(passage))
        return;
    end.passages.push_back(passage);
    if (end.passages.size() > MOST_PASSAGES) {
        ++end.thinned;
        end.passages.erase_if([&](const Passage &one) { return !is_kept(one); });
    }
}

bool ClockOrderFinder::is_whole_and_certain(const Operation &operation) const {
    return waits_for_all(operation.func) && operation.count != 0 && operation.rung == Rung::Exact &&
           operation.seq_base >= SeqBase::Launched && !operation.has(OPERATION_CAPTURED) &&
           !operation.has(OPERATION_DIFFERS);
}

// One channel of each operation, since a ring's channels need not wait for each other. Of a host
// the first rank that the ring leaves by, and the first that it enters by: there is one of each.
void ClockOrderFinder::add_to_ring(const OperationPlace &place, std::uint8_t channel, Index host,
                                   bool is_send, const Passage &passage) {
    if (place.is_pair || place.index == NONE)
        return;
    const Operation &operation = nccl_.collectives[place.index];
    if (operation.algorithm != CW_NCCL_RING || !is_whole_and_certain(operation))
        return;
    Hub &hub = hubs_[place.index];
    if (hub.host == NONE) {
        hub.host = host;
        hub.channel = channel;
    }
    if (channel != hub.channel)
        return;
    if (host == hub.host) {
        (is_send ? hub.started_ns : hub.completed_ns) =
            is_send ? passage.started_ns : passage.completed_ns;
        return;
    }
    if (is_send)
        causal_.add({host, passage.started_ns, hub.host, hub.completed_ns});
    else
        causal_.add({hub.host, hub.started_ns, host, passage.completed_ns});
}

void ClockOrderFinder::add_queue_pairs() {
    for (const Qp &qp : model_.qps) {
        if (!has_one_peer(qp))
            continue;
        const Qp &peer = model_.qps[qp.peer];
        if (peer.host == qp.host || !has_one_peer(peer))
            continue;
        causal_.add({qp.host, created_ns(qp), peer.host, peer.connected_ns});
    }
}

void ClockOrderFinder::add_connections() {
    for (const End &send : ends_) {
        if (send.peer == NONE)
            continue;
        const End &receive = ends_[send.peer];
        PassageLog::Reader sends(send.passages), receives(receive.passages);
        Passage here, there;
        bool is_there = receives.next(there);
        while (is_there && sends.next(here)) {
            while (is_there && there.end_steps < here.end_steps)
                is_there = receives.next(there);
            if (!is_there || there.end_steps != here.end_steps ||
                there.base_steps != here.base_steps)
                continue;
            causal_.add({send.host, here.started_ns, receive.host, there.completed_ns});
            if (send.is_ib)
                causal_.add({receive.host, there.started_ns, send.host, here.completed_ns});
        }
    }
}

void ClockOrderFinder::add_kernels() {
    if (!nccl_.gpu.is_recorded())
        return;
    // How far the times of a process may be off. Absent: some may be another kernel's.
    std::vector<std::optional<std::uint64_t>> errors(nccl_.gathered.gpu_processes.size());
    for (const GpuGuest &guest : nccl_.gpu.guests)
        if (guest.seen_kernels == 0 && guest.last.clock_error_ns != 0)
            errors[guest.process] = std::max<std::uint64_t>(guest.last.clock_error_ns,
                                                            guest.profiler_last.clock_error_ns);
    for (const GpuTrace &trace : nccl_.gpu.traces)
        if (trace.source != CW_GPU_SOURCE_CUPTI || trace.by_time != 0 || trace.contradicted != 0)
            errors[trace.process].reset();
    if (std::none_of(errors.begin(), errors.end(),
                     [](const auto &error) { return error.has_value(); }))
        return;
    const Parts parts(model_);
    for (const Operation &operation : nccl_.collectives) {
        if (!is_whole_and_certain(operation))
            continue;
        std::vector<clocks::CausalOrder::Stay> stays;
        for (const OperationCall &call : parts.calls_of(operation)) {
            if (call.launch == NONE)
                continue;
            const Instance &instance = nccl_.instances[call.instance];
            const auto &[process, index] = nccl_.gpu.kernel_of_launch[instance.stream][call.launch];
            if (process == NONE || !errors[process])
                continue;
            const GpuKernel &kernel = nccl_.gathered.gpu_processes[process].kernels[index];
            if (kernel.start_ns > *errors[process])
                stays.push_back({instance.host, kernel.start_ns - *errors[process],
                                 kernel.end_ns == 0 ? 0 : kernel.end_ns + *errors[process]});
        }
        causal_.add(stays);
    }
}

clocks::CausalOrder ClockOrderFinder::finish() {
    add_queue_pairs();
    add_connections();
    ends_ = {};
    hubs_ = {};
    add_kernels();
    causal_.finish();
    return std::move(causal_);
}

void solve_node_clocks(Model &model, ClockOrderFinder &finder) {
    model.clocks = clocks::solve_clocks(finder.finish(), model.hosts.size());
}

} // namespace collwire::nccl
