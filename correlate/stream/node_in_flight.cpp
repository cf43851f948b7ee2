// SPDX-License-Identifier: Apache-2.0
// What the ranks of a process had in flight when its recording, or the process, ended.
#include <algorithm>
#include <map>
#include <set>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_launch_records.h"
#include "correlate/stream/node_standing.h"

namespace collwire::stream {
namespace {

constexpr int MAX_ANCESTORS = 64;

} // namespace

std::vector<nccl::Birth> NodeStanding::births_of(std::uint32_t tgid,
                                                 const Connection &connection) const {
    const auto record_at = [&](std::uint64_t address,
                               std::uint64_t time_ns) -> const cw_nccl_comm * {
        const auto place = places_.find({tgid, address});
        if (place == places_.end() || place->second.comms.empty())
            return nullptr;
        const cw_nccl_comm *found = &place->second.comms.front();
        for (const cw_nccl_comm &comm : place->second.comms)
            if (comm.header.time_ns <= time_ns)
                found = &comm;
        return found;
    };
    std::vector<nccl::Birth> births;
    for (const auto &[address, time_ns] : connection.makers) {
        const cw_nccl_comm *maker = record_at(address, time_ns);
        for (int i = 0;
             i < MAX_ANCESTORS && maker != nullptr && (maker->flags & CW_NCCL_COMM_SHARED) != 0;
             ++i)
            maker = maker->parent == 0 ? nullptr : record_at(maker->parent, maker->header.time_ns);
        if (maker == nullptr || std::ranges::any_of(births, [&](const nccl::Birth &known) {
                return known.time_ns == maker->header.time_ns;
            }))
            continue;
        births.push_back({maker->header.time_ns, (maker->flags & CW_NCCL_COMM_CREATED) != 0});
    }
    return births;
}

bool NodeStanding::uses_network(std::uint32_t tgid, const Shape &shape) const {
    return std::ranges::any_of(shape.ops, [&](const ShapeOp &op) {
        if (op.is_mark)
            return false;
        const auto found = connections_.find({tgid, op.connection});
        return !op.is_there || found == connections_.end() || !found->second.is_local;
    });
}

// Of the task of a launch; absent: it is no collective, or not known.
std::optional<std::uint64_t> NodeStanding::number_of(const Shape &shape, const Launch &launch,
                                                     std::uint32_t task) const {
    if (!launch.is_counted || task >= shape.funcs.size() || shape.funcs[task] > CW_NCCL_ALL_REDUCE)
        return std::nullopt;
    const auto later = std::count_if(shape.funcs.begin() + task + 1, shape.funcs.end(),
                                     [](std::uint8_t func) { return func <= CW_NCCL_ALL_REDUCE; });
    const std::uint64_t after = static_cast<std::uint64_t>(later) + 1;
    return launch.launched < after ? std::nullopt : std::optional(launch.launched - after);
}

// As nccl::find_under_way has it, for all communicators of one process: they may share connections.
void NodeStanding::find_in_flight(std::vector<Live *> &of_process) {
    const std::uint32_t tgid = of_process.front()->address.first;
    struct Started {
        const Launch *launch;
        const Shape *shape;
        Live *live;
    };
    std::vector<Started> started;
    for (auto &[address, place] : places_) {
        if (address.first != tgid)
            continue;
        const auto live =
            std::ranges::find(of_process, address, [](const Live *one) { return one->address; });
        for (const Launch &launch : place.launches) {
            const auto shape = shapes_.find({tgid, launch.shape});
            if (shape != shapes_.end())
                started.push_back({&launch, &shape->second,
                                   live == of_process.end() || launch.time_ns < (*live)->begin_ns
                                       ? nullptr
                                       : *live});
        }
    }
    std::ranges::stable_sort(started, {}, [](const Started &one) { return one.launch->time_ns; });
    std::unordered_map<std::uint64_t, Flow> flows;
    const auto flow_of = [&](const ShapeOp &op) -> Flow * {
        if (!op.is_there)
            return nullptr;
        if (const auto known = flows.find(op.connection); known != flows.end())
            return &known->second;
        const Address at{tgid, op.connection};
        const auto connection = connections_.find(at);
        const auto steps = steps_.find(at);
        const auto progress = progress_.find(at);
        if (connection == connections_.end() ||
            (steps == steps_.end() && progress == progress_.end()))
            return nullptr;
        static const std::vector<nccl::ProgressEvent> none;
        return &flows
                    .emplace(op.connection,
                             Flow{{births_of(tgid, connection->second),
                                   steps == steps_.end() ? std::vector<nccl::StepSample>{}
                                                         : steps->second,
                                   progress == progress_.end() ? none : progress->second}})
                    .first->second;
    };
    const auto for_each_op = [&](const auto &visit) {
        for (const Started &one : started)
            for (const ShapeOp &op : one.shape->ops) {
                const auto connection = connections_.find({tgid, op.connection});
                if (op.is_mark || (connection != connections_.end() && connection->second.is_local))
                    continue;
                visit(one, op, flow_of(op));
            }
    };
    for_each_op([](const Started &one, const ShapeOp &op, Flow *flow) {
        if (flow != nullptr)
            flow->times.learn({one.launch->time_ns, op.nsteps, op.chunk_steps});
    });
    for (auto &[address, flow] : flows)
        flow.times.learned();
    struct Candidate {
        const Started *of = nullptr; // whose place is known
        std::uint32_t task = 0;
        std::uint64_t seen_ns = 0;
        std::set<std::uint64_t> uncertain; // connections with operations whose place is not known
    };
    std::map<Live *, Candidate> candidates;
    std::map<Live *, const Started *> last; // launch of a collective
    for (const Started &one : started)
        if (one.live != nullptr && std::ranges::any_of(one.shape->funcs, [](std::uint8_t func) {
                return func <= CW_NCCL_ALL_REDUCE;
            }))
            last[one.live] = &one;
    const std::uint64_t asked_ns = until_ns(tgid);
    for (Live *live : of_process)
        find_steps_from(*live);
    const auto put_step = [&](const Started &one, const ShapeOp &op, std::uint64_t end) {
        const std::uint32_t number = connections_.at({tgid, op.connection}).number;
        const auto [at, is_new] =
            one.live->steps.try_emplace({one.launch, op.task}, Live::Step{end, number});
        if (!is_new && number < at->second.connection)
            at->second = {end, number};
    };
    for_each_op([&](const Started &one, const ShapeOp &op, Flow *flow) {
        const nccl::OpTime time =
            flow == nullptr ? nccl::OpTime{}
                            : flow->times.next({one.launch->time_ns, op.nsteps, op.chunk_steps});
        if (one.live == nullptr)
            return;
        if (op.is_transfer && time.end_steps != 0 && one.launch->time_ns >= one.live->steps_from_ns)
            put_step(one, op, time.end_steps);
        Candidate &candidate = candidates[one.live];
        const std::uint64_t end_ns =
            time.known == nccl::EndKnown::Measured ? time.end_ns : time.before_ns;
        const bool is_done = time.known != nccl::EndKnown::No && end_ns <= asked_ns;
        // A connection carries operations one after the other: those before it are done, too.
        if (is_done && !candidate.uncertain.empty())
            candidate.uncertain.erase(op.connection);
        if (candidate.of != nullptr || one.launch->time_ns > asked_ns || is_done)
            return;
        if (time.after_ns == 0) {
            candidate.uncertain.insert(op.connection);
            return;
        }
        candidate.of = &one;
        candidate.task = op.task;
        candidate.seen_ns = time.after_ns > one.launch->time_ns ? time.after_ns : 0;
    });
    for (Live *live : of_process) {
        RankStanding &rank = live->standing;
        const Candidate &candidate = candidates[live];
        const Started *launch = last[live];
        const bool is_on_network = launch != nullptr && uses_network(tgid, *launch->shape);
        rank.has_unknown_end =
            is_on_network && candidate.of == nullptr && !candidate.uncertain.empty();
        if (is_on_network && !rank.has_unknown_end)
            rank.is_done = candidate.of == nullptr;
        if (candidate.of == nullptr || candidate.seen_ns == 0)
            continue;
        const std::uint64_t read_ns = session_.read_last_ns(candidate.seen_ns, asked_ns);
        const std::uint64_t seen_ns = host_.realtime_ns(std::max(candidate.seen_ns, read_ns));
        rank.waits_until_ns = seen_ns;
        if (const auto number =
                number_of(*candidate.of->shape, *candidate.of->launch, candidate.task)) {
            rank.in_flight = number;
            rank.in_flight_seen_ns = seen_ns;
        }
    }
}

} // namespace collwire::stream
