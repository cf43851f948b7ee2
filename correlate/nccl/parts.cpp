// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/parts.h"

#include <algorithm>
#include <tuple>

#include "correlate/nccl/resolve.h"
#include "correlate/nccl/time_operations.h"

namespace collwire::identity {

Parts::Parts(const model::Model &model) : nccl_(model.nccl) {
    for (Index index = 0; index < nccl_.instances.size(); ++index) {
        const Instance &instance = nccl_.instances[index];
        const CommStream &stream = nccl_.gathered.streams[instance.stream];
        const std::vector<CallJoin> &joins = nccl_.call_joins[instance.stream];
        for (std::uint32_t i = 0; i < instance.n_calls; ++i) {
            const std::uint32_t call = instance.first_call + i;
            if (joins[call].operation != NONE)
                calls_[is_p2p(stream.calls[call].func) ? 1 : 0].push_back(
                    {joins[call].operation, index, call});
        }
        const std::vector<std::uint32_t> &task_calls = nccl_.task_calls[instance.stream];
        for (std::uint32_t i = 0; i < instance.n_launches; ++i) {
            const std::uint32_t launch = instance.first_launch + i;
            for (std::uint32_t task = 0; task < stream.launches[launch].n_tasks; ++task)
                if (const std::uint32_t call =
                        task_calls[stream.launches[launch].first_task + task];
                    call != NONE)
                    launches_.push_back({instance.stream, call, launch});
        }
    }
    for (std::vector<CallRef> &calls : calls_)
        std::sort(calls.begin(), calls.end());
    std::sort(launches_.begin(), launches_.end());
    launches_.erase(std::unique(launches_.begin(), launches_.end()), launches_.end());
    find_times(model);
}

void Parts::find_times(const model::Model &model) {
    OperationTimer(model).for_each([&](const PlaceOfOp &at, const OpTime &time) {
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

std::vector<Part> Parts::of(const Operation &operation) const {
    const bool is_pair = is_p2p(operation.func);
    const std::vector<Operation> &operations = is_pair ? nccl_.p2p : nccl_.collectives;
    const std::uint32_t replay = operation.replay == NONE ? 0 : operation.replay;
    // Calls name the first replay.
    const auto first = static_cast<Index>(&operation - operations.data()) - replay;
    const std::vector<CallRef> &calls = calls_[is_pair ? 1 : 0];
    std::vector<Part> parts;
    for (auto call = std::lower_bound(calls.begin(), calls.end(), CallRef{first, 0, 0});
         call != calls.end() && call->operation == first; ++call) {
        const Index stream = nccl_.instances[call->instance].stream;
        for (auto launch = std::lower_bound(launches_.begin(), launches_.end(),
                                            LaunchRef{stream, call->call, 0});
             launch != launches_.end() && launch->stream == stream && launch->call == call->call;
             ++launch)
            add_launch(*call, launch->launch, operation.replay, parts);
    }
    return parts;
}

void Parts::add_launch(const CallRef &ref, std::uint32_t index, std::uint32_t replay,
                       std::vector<Part> &parts) const {
    const Index stream = nccl_.instances[ref.instance].stream;
    const Launch &launch = nccl_.gathered.streams[stream].launches[index];
    const bool is_captured = (launch.flags & CW_NCCL_LAUNCH_GRAPH) != 0;
    if (launch.shape_index == NONE || (is_captured && launch.replay != replay))
        return;
    const Shape &shape = nccl_.shapes[launch.shape_index];
    for (std::uint32_t i = 0; i < shape.ops.size(); ++i) {
        const ShapeOp &op = shape.ops[i];
        if (op.link == NONE || op.task >= launch.n_tasks ||
            nccl_.task_calls[stream][launch.first_task + op.task] != ref.call)
            continue;
        const Link &link = nccl_.links[op.link];
        Part part{ref.instance,
                  op.link,
                  op.peer,
                  op.channel,
                  link.is_send(),
                  share_of(link, op, launch.order, i),
                  time_of(stream, index, i)};
        part.share.rung =
            std::min({part.share.rung, link.rung, nccl_.call_joins[stream][ref.call].rung});
        parts.push_back(part);
    }
}

} // namespace collwire::identity
