// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/parts.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "collwire/nccl_launch_records.h"
#include "correlate/nccl/resolve.h"
#include "correlate/nccl/time_operations.h"

namespace collwire::nccl {

Parts::Parts(const model::Model &model) : nccl_(model.nccl) {
    for (Index index = 0; index < nccl_.instances.size(); ++index) {
        const Instance &instance = nccl_.instances[index];
        const CommStream &stream = nccl_.gathered.streams[instance.stream];
        const CallJoins &joins = nccl_.call_joins[instance.stream];
        for (std::uint32_t i = 0; i < instance.n_calls; ++i) {
            const std::uint32_t call = instance.first_call + i;
            if (joins.operation(call) != NONE)
                calls_[is_p2p(stream.calls[call].func) ? 1 : 0].push_back(
                    {joins.operation(call), index, call});
        }
        find_tasks(instance);
    }
    for (std::vector<CallRef> &calls : calls_)
        std::sort(calls.begin(), calls.end());
    std::sort(tasks_.begin(), tasks_.end());
    for (const Shape &shape : nccl_.shapes) {
        std::vector<std::uint32_t> &ops = ops_of_shapes_.emplace_back(shape.ops.size());
        std::iota(ops.begin(), ops.end(), 0U);
        std::stable_sort(ops.begin(), ops.end(), [&](std::uint32_t a, std::uint32_t b) {
            return shape.ops[a].task < shape.ops[b].task;
        });
    }
    find_times(model);
}

void Parts::find_tasks(const Instance &instance) {
    const CallJoins &joins = nccl_.call_joins[instance.stream];
    const std::vector<std::uint32_t> &task_calls = nccl_.task_calls[instance.stream];
    for (std::uint32_t i = 0; i < instance.n_launches; ++i) {
        const std::uint32_t index = instance.first_launch + i;
        const Launch &launch = nccl_.gathered.streams[instance.stream].launches[index];
        const bool is_captured = (launch.flags & CW_NCCL_LAUNCH_GRAPH) != 0;
        const std::uint32_t replay = is_captured ? launch.replay : 0;
        if (launch.shape_index == NONE)
            continue;
        for (std::uint32_t task = 0; task < launch.n_tasks; ++task)
            if (const std::uint32_t call = task_calls[launch.first_task + task];
                call != NONE && replay < joins[call].launches)
                tasks_.push_back({instance.stream, call, replay, index, task});
    }
}

void Parts::find_times(const model::Model &model) {
    OperationTimer(model).for_each([&](const OpVisit &of, const OpTime &time) {
        const PlaceOfOp &at = of.at;
        if (time.known != EndKnown::No || time.after_ns != 0)
            times_.push_back({nccl_.instances[at.instance].stream, at.launch, at.op, time});
    });
    std::sort(times_.begin(), times_.end(), [](const TimedRef &a, const TimedRef &b) {
        return std::tie(a.stream, a.launch, a.op) < std::tie(b.stream, b.launch, b.op);
    });
}

OpTime Parts::time_of(Index stream, std::uint32_t launch, std::uint32_t op) const {
    const auto wanted = std::tie(stream, launch, op);
    const auto found = std::lower_bound(
        times_.begin(), times_.end(), wanted,
        [](const TimedRef &a, const auto &of) { return std::tie(a.stream, a.launch, a.op) < of; });
    const bool is_it =
        found != times_.end() && std::tie(found->stream, found->launch, found->op) == wanted;
    return is_it ? found->time : OpTime{};
}

namespace {

std::uint32_t replay_of(const Operation &operation) {
    return operation.replay == NONE ? 0 : operation.replay;
}

} // namespace

std::span<const Parts::CallRef> Parts::calls_named_by(const Operation &operation) const {
    const bool is_pair = is_p2p(operation.func);
    const std::vector<Operation> &operations = is_pair ? nccl_.p2p : nccl_.collectives;
    // Calls name the first replay.
    const auto first = static_cast<Index>(&operation - operations.data()) - replay_of(operation);
    const std::vector<CallRef> &calls = calls_[is_pair ? 1 : 0];
    const auto begin = std::lower_bound(calls.begin(), calls.end(), CallRef{first, 0, 0});
    const auto end = std::find_if(begin, calls.end(),
                                  [first](const CallRef &call) { return call.operation != first; });
    return {begin, end};
}

std::vector<OperationCall> Parts::calls_of(const Operation &operation) const {
    const std::uint32_t replay = replay_of(operation);
    std::vector<OperationCall> result;
    for (const CallRef &ref : calls_named_by(operation)) {
        const Index index = nccl_.instances[ref.instance].stream;
        const CommStream &stream = nccl_.gathered.streams[index];
        const auto task =
            std::lower_bound(tasks_.begin(), tasks_.end(), TaskRef{index, ref.call, replay, 0, 0});
        std::uint32_t launch = replay == 0 ? nccl_.call_joins[index].launch(ref.call) : NONE;
        if (task != tasks_.end() && task->stream == index && task->call == ref.call &&
            task->replay == replay)
            launch = task->launch;
        const bool is_known = launch != NONE && !nccl_.instances[ref.instance].is_calls_only;
        result.push_back({ref.instance, stream.calls[ref.call], is_known ? launch : NONE});
    }
    std::stable_sort(result.begin(), result.end(),
                     [this](const OperationCall &a, const OperationCall &b) {
                         return nccl_.instances[a.instance].record.rank <
                                nccl_.instances[b.instance].record.rank;
                     });
    return result;
}

std::vector<Part> Parts::of(const Operation &operation) const {
    const std::uint32_t replay = replay_of(operation);
    std::vector<Part> parts;
    std::vector<std::uint32_t> ops;
    for (const CallRef &call : calls_named_by(operation)) {
        const Index stream = nccl_.instances[call.instance].stream;
        const auto is_of_call = [&](const TaskRef &task) {
            return task.stream == stream && task.call == call.call && task.replay == replay;
        };
        auto task = std::lower_bound(tasks_.begin(), tasks_.end(),
                                     TaskRef{stream, call.call, replay, 0, 0});
        while (task != tasks_.end() && is_of_call(*task)) {
            const std::uint32_t launch = task->launch;
            ops.clear();
            for (; task != tasks_.end() && is_of_call(*task) && task->launch == launch; ++task)
                add_ops_of(*task, ops);
            std::sort(ops.begin(), ops.end());
            for (const std::uint32_t op : ops)
                add_op(call, launch, op, parts);
        }
    }
    return parts;
}

std::vector<LocalPart> Parts::local_of(const Operation &operation) const {
    const std::uint32_t replay = replay_of(operation);
    std::vector<LocalPart> parts;
    if (!nccl_.local.has_nodes)
        return parts;
    const auto add = [&](Index instance, Index shape, std::uint32_t task) {
        const auto found = nccl_.local.tasks.find({instance, shape});
        if (found == nccl_.local.tasks.end() || task >= found->second.size())
            return;
        for (const LocalSend &send : found->second[task].edges)
            parts.push_back({instance, send});
    };
    for (const CallRef &call : calls_named_by(operation)) {
        const Index stream = nccl_.instances[call.instance].stream;
        const auto is_of_call = [&](const TaskRef &task) {
            return task.stream == stream && task.call == call.call && task.replay == replay;
        };
        auto task = std::lower_bound(tasks_.begin(), tasks_.end(),
                                     TaskRef{stream, call.call, replay, 0, 0});
        const bool is_launched = task != tasks_.end() && is_of_call(*task);
        for (; task != tasks_.end() && is_of_call(*task); ++task)
            add(call.instance, nccl_.gathered.streams[stream].launches[task->launch].shape_index,
                task->task);
        if (is_launched || is_p2p(operation.func))
            continue;
        // What the launch of another rank says of it.
        const LocalOperation &local =
            nccl_.local
                .collectives[static_cast<std::size_t>(&operation - nccl_.collectives.data())];
        add(call.instance, local.shape, local.task);
    }
    return parts;
}

void Parts::add_ops_of(const TaskRef &ref, std::vector<std::uint32_t> &into) const {
    const Index index = nccl_.gathered.streams[ref.stream].launches[ref.launch].shape_index;
    const Shape &shape = nccl_.shapes[index];
    const std::vector<std::uint32_t> &ops = ops_of_shapes_[index];
    for (auto op = std::lower_bound(
             ops.begin(), ops.end(), ref.task,
             [&](std::uint32_t i, std::uint32_t task) { return shape.ops[i].task < task; });
         op != ops.end() && shape.ops[*op].task == ref.task; ++op)
        if (shape.ops[*op].link != NONE)
            into.push_back(*op);
}

void Parts::add_op(const CallRef &ref, std::uint32_t index, std::uint32_t op_index,
                   std::vector<Part> &parts) const {
    const Index stream = nccl_.instances[ref.instance].stream;
    const Launch &launch = nccl_.gathered.streams[stream].launches[index];
    const ShapeOp &op = nccl_.shapes[launch.shape_index].ops[op_index];
    const Link &link = nccl_.links[op.link];
    Part part{ref.instance,
              op.link,
              op.connection,
              op.peer,
              op.channel,
              link.is_send(),
              share_of(link, op, launch.order, op_index),
              time_of(stream, index, op_index)};
    part.share.rung =
        std::min({part.share.rung, link.rung,
                  rung_of_call(nccl_, nccl_.instances[ref.instance], launch, ref.call)});
    parts.push_back(part);
}

} // namespace collwire::nccl
