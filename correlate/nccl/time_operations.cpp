// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/time_operations.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "collwire/nccl_comm_records.h"
#include "correlate/model/counters.h"
#include "correlate/nccl/clock_order.h"
#include "correlate/nccl/resolve.h"
#include "correlate/nccl/verify_posts.h"

namespace collwire::nccl {

using model::Host;
using model::Model;

namespace {

constexpr int MAX_ANCESTORS = 64;

// The communicator that created this one's connections: an ancestor, if they are shared. NONE: not
// recorded.
Index maker_of(const NcclFacts &nccl, Index instance) {
    for (int i = 0; i < MAX_ANCESTORS && instance != NONE; ++i) {
        if (!nccl.instances[instance].is_shared())
            return instance;
        instance = nccl.instances[instance].parent;
    }
    return NONE;
}

} // namespace

OperationTimer::OperationTimer(const Model &model) : nccl_(model.nccl) {
    put_launches_in_order();
    for (const auto &[key, connections] : nccl_.gathered.connections_at) {
        const auto steps = nccl_.gathered.steps.find(key);
        const auto progress = nccl_.gathered.progress.find(key);
        const bool has_steps = steps != nccl_.gathered.steps.end();
        const bool has_progress = progress != nccl_.gathered.progress.end();
        if (has_steps || has_progress)
            connections_.try_emplace(
                key, Connection{{births_of(connections),
                                 has_steps ? steps->second : std::vector<StepSample>{},
                                 has_progress ? progress->second : std::vector<ProgressEvent>{}},
                                {}});
    }
    find_connections();
    for_each_op([](Connection *connection, const TimedOp &timed, const OpVisit &of) {
        if (connection != nullptr && !of.op.is_continued)
            connection->times.learn(timed);
    });
    for (auto &[key, connection] : connections_)
        connection.times.learned();
}

void OperationTimer::put_launches_in_order() {
    for (Index index = 0; index < nccl_.instances.size(); ++index)
        for (std::uint32_t i = 0; i < nccl_.instances[index].n_launches; ++i)
            launches_.push_back({index, nccl_.instances[index].first_launch + i, 0});
    const auto order_of = [this](const PlaceOfOp &at) {
        const Instance &instance = nccl_.instances[at.instance];
        return std::pair(instance.session,
                         nccl_.gathered.streams[instance.stream].launches.order(at.launch));
    };
    std::stable_sort(
        launches_.begin(), launches_.end(),
        [&](const PlaceOfOp &a, const PlaceOfOp &b) { return order_of(a) < order_of(b); });
}

std::vector<Birth> OperationTimer::births_of(const std::vector<Index> &connections) const {
    std::vector<Birth> births;
    for (const Index index : connections) {
        const GatheredConnection &connection = nccl_.gathered.connections[index];
        const Index maker =
            connection.head.comm == 0
                ? NONE
                : maker_of(nccl_,
                           instance_at(nccl_, connection.session, connection.head.tgid,
                                       connection.head.comm, connection.head.header.time_ns));
        if (maker == NONE)
            continue;
        const Instance &instance = nccl_.instances[maker];
        // Each segment repeats it, as does each communicator that uses it.
        if (std::none_of(births.begin(), births.end(),
                         [&](const Birth &known) { return known.time_ns == instance.begin_ns; }))
            births.push_back({instance.begin_ns, instance.created});
    }
    return births;
}

template <typename Visit> void OperationTimer::for_each_op(Visit visit) {
    for (PlaceOfOp at : launches_) {
        const Instance &instance = nccl_.instances[at.instance];
        const Launch &launch = nccl_.gathered.streams[instance.stream].launches[at.launch];
        if (launch.shape_index == NONE)
            continue;
        const Shape &shape = nccl_.shapes[launch.shape_index];
        for (at.op = 0; at.op < shape.ops.size(); ++at.op) {
            const ShapeOp &op = shape.ops[at.op];
            if (!op.is_local)
                visit(op.connection == NONE ? nullptr : connection_of_[op.connection],
                      TimedOp{launch.time_ns, op.nsteps, op.chunk_steps}, OpVisit{at, launch, op});
        }
    }
}

void OperationTimer::for_each(const std::function<void(const OpVisit &, const OpTime &)> &visit) {
    for_each_op([&](Connection *connection, const TimedOp &timed, const OpVisit &of) {
        if (connection != nullptr && !of.op.is_continued)
            connection->last = connection->times.next(timed);
        visit(of, connection == nullptr ? OpTime{} : connection->last);
    });
}

void OperationTimer::find_connections() {
    connection_of_.reserve(nccl_.gathered.connections.size());
    for (const GatheredConnection &of : nccl_.gathered.connections) {
        const auto found = connections_.find({of.head.connection, of.session, of.head.tgid});
        connection_of_.push_back(found == connections_.end() ? nullptr : &found->second);
    }
}

namespace {

void add_part(Operation &operation, const Host &host, std::uint64_t launch_ns, const OpTime &time) {
    const bool is_measured = time.known == EndKnown::Measured;
    const std::uint64_t after_ns = is_measured ? time.end_ns : time.after_ns;
    const std::uint64_t before_ns = is_measured ? time.end_ns : time.before_ns;
    const auto raise = [](std::uint64_t &most, std::uint64_t value) {
        most = std::max(most, value);
    };
    if (after_ns != 0) {
        raise(operation.end_after_realtime_ns, host.realtime_ns(after_ns));
        raise(operation.least_duration_ns, model::subtract_or_zero(after_ns, launch_ns));
    }
    if (time.known == EndKnown::No) {
        operation.flags |= OPERATION_END_UNKNOWN;
        return;
    }
    raise(operation.end_before_realtime_ns, host.realtime_ns(before_ns));
    raise(operation.most_duration_ns, model::subtract_or_zero(before_ns, launch_ns));
    operation.end_known = operation.end_known == EndKnown::No
                              ? time.known
                              : std::min(operation.end_known, time.known);
}

// The operations of a launch that follow each other are mostly of one task.
class OperationOfTask {
public:
    explicit OperationOfTask(const NcclFacts &nccl) : nccl_(nccl) {}

    OperationPlace find(const OpVisit &of) {
        if (of.at.instance != at_.instance || of.at.launch != at_.launch || of.op.task != task_) {
            at_ = of.at;
            task_ = of.op.task;
            std::tie(place_.is_pair, place_.index) =
                operation_of(nccl_, nccl_.instances[at_.instance], of.launch, task_);
        }
        return place_;
    }

private:
    const NcclFacts &nccl_;
    PlaceOfOp at_;
    std::uint32_t task_ = 0;
    OperationPlace place_;
};

void complete(Operation &operation) {
    if (operation.has(OPERATION_END_UNKNOWN)) {
        operation.end_known = EndKnown::No;
        operation.end_before_realtime_ns = operation.most_duration_ns = 0;
        return;
    }
    // The last of its parts was measured; the others may be sampled.
    if (operation.end_known != EndKnown::No &&
        operation.end_after_realtime_ns == operation.end_before_realtime_ns)
        operation.end_known = EndKnown::Measured;
}

} // namespace

void time_operations(Model &model, ClockOrderFinder &clock_order) {
    NcclFacts &nccl = model.nccl;
    PostVerifier verifier(model);
    if (nccl.gathered.steps.empty() && nccl.gathered.progress.empty())
        return verifier.finish();
    OperationOfTask operation_of_task(nccl);
    OperationTimer(model).for_each([&](const OpVisit &of, const OpTime &time) {
        const OperationPlace operation = operation_of_task.find(of);
        verifier.add(of, time);
        clock_order.add(of, operation, time);
        if (operation.index != NONE)
            add_part(operation.is_pair ? nccl.p2p[operation.index]
                                       : nccl.collectives[operation.index],
                     model.hosts[nccl.instances[of.at.instance].host], of.launch.time_ns, time);
    });
    verifier.finish();
    for (std::vector<Operation> *operations : {&nccl.collectives, &nccl.p2p})
        for (Operation &operation : *operations)
            complete(operation);
}

} // namespace collwire::nccl
