// SPDX-License-Identifier: Apache-2.0
// Finds the call of each launch. A launch's task carries the hash of its call's arguments, so only
// calls with equal arguments are ambiguous; the order of calls separates those.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include "collwire/nccl_launch_records.h"
#include "correlate/capture/nccl_names.h"
#include "correlate/nccl/captured_plans.h"
#include "correlate/nccl/match_older.h"
#include "correlate/nccl/resolve.h"
#include "correlate/nccl/uncaptured_calls.h"

namespace collwire::nccl {

using model::Model;

namespace {

// Calls with equal arguments, in order.
struct Queue {
    std::vector<std::uint32_t> calls;
    std::size_t first = 0;          // earlier ones have been launched
    std::size_t first_captured = 0; // or were not captured
    // Earlier ones were waiting when a guess launched another.
    std::size_t guessed_end = 0;
    // Where those of one guess, and of the guesses among them, begin.
    std::vector<std::size_t> guesses;
};

// The parts of AlltoAll, Gather and Scatter to or from one peer: the k-th one belongs to the k-th
// such call.
struct PartQueue {
    std::size_t next = 0;
    std::size_t next_captured = 0;
};

bool is_of_graph(const Launch &launch) {
    return (launch.flags & CW_NCCL_LAUNCH_GRAPH) != 0;
}

class Matcher {
public:
    Matcher(Model &model, const Instance &instance, const UncapturedCalls &uncaptured)
        : nccl_(model.nccl), instance_(instance), uncaptured_(uncaptured),
          stream_(nccl_.gathered.streams[instance.stream]),
          joins_(nccl_.call_joins[instance.stream]), task_calls_(nccl_.task_calls[instance.stream]),
          is_older_(is_older(nccl_, instance)), best_(best_known()),
          best_of_graph_(may_lack_launches(nccl_, instance) ? std::min(best_, Rung::Inferred)
                                                            : best_),
          plans_(nccl_, instance, best_of_graph_) {}

    void run(OlderReport &older) {
        if (is_older_)
            return match_older(nccl_, instance_, best_, older);
        line_up_calls();
        for (std::uint32_t i = 0; i < instance_.n_launches; ++i) {
            const Launch launch = stream_.launches[instance_.first_launch + i];
            if (is_of_graph(launch))
                match_captured(launch, instance_.first_launch + i);
            else
                match_tasks(launch, instance_.first_launch + i);
        }
        settle_guesses();
        plans_.finish([](const Call &call) { return std::uint64_t{call.arguments_hash}; },
                      uncaptured_);
    }

    // Those that have a launch of their own. Nothing else changes.
    void note_uncaptured(UncapturedCalls &into) {
        if (is_older_)
            return;
        line_up_calls();
        for (std::uint32_t i = 0; i < instance_.n_launches; ++i)
            if (const Launch launch = stream_.launches[instance_.first_launch + i];
                !is_of_graph(launch)) {
                match_tasks(launch, instance_.first_launch + i);
                std::fill_n(task_calls_.begin() + launch.first_task, launch.n_tasks, NONE);
            }
        for (std::uint32_t i = 0; i < instance_.n_calls; ++i) {
            const std::uint32_t call = instance_.first_call + i;
            if (!is_launched(call))
                continue;
            if (joins_[call].rung == Rung::Exact)
                into.note(nccl_, instance_.stream, call);
            joins_.set(call, {});
        }
    }

private:
    // For a call that was split into sends and receives.
    static bool is_part(const cw_nccl_shape_task *task) {
        return task != nullptr && is_p2p(task->func) && task->api_func != task->func &&
               is_made_of_parts(task->api_func);
    }

    // Each peer's part has the call's count.
    using PartKey = std::tuple<std::uint8_t, bool, std::int32_t, std::uint64_t>;
    static PartKey part_key(const cw_nccl_shape_task &task) {
        return {task.api_func, task.func == CW_NCCL_SEND, task.root, task.bytes};
    }

    // Launches that are due before any other: tasks by their hash, parts by their key.
    struct Due {
        std::unordered_map<std::uint32_t, std::uint32_t> tasks;
        std::map<PartKey, std::uint32_t> parts;
    };

    // Operations of older versions are matched by their order.
    [[nodiscard]] Rung best_known() const {
        return !is_older_ || instance_.operations_rung == Rung::Process ? instance_.operations_rung
                                                                        : Rung::Exact;
    }

    [[nodiscard]] Call call_at(std::uint32_t i) const { return stream_.calls[i]; }

    void line_up_calls() {
        // Launches before each call: calls without a launch between them may be a group.
        batches_.resize(instance_.n_calls);
        std::uint32_t launch = 0;
        std::uint32_t batch = 0;
        for (std::uint32_t i = 0; i < instance_.n_calls; ++i) {
            const std::uint32_t index = instance_.first_call + i;
            const Call &call = call_at(index);
            for (; launch < instance_.n_launches &&
                   stream_.launches[instance_.first_launch + launch].time_ns < call.time_ns;
                 ++launch)
                if (!is_of_graph(stream_.launches[instance_.first_launch + launch]))
                    ++batch;
            batches_[i] = batch;
            if (never_launches(call, instance_))
                continue;
            by_hash_[call.arguments_hash].calls.push_back(index);
            if (is_made_of_parts(call.func))
                whole_[{call.func, call.func == CW_NCCL_ALL_TO_ALL ? 0 : call.root,
                        call.count * capture::nccl_datatype_bytes(call.datatype)}]
                    .calls.push_back(index);
        }
    }

    [[nodiscard]] std::uint32_t batch_of(std::uint32_t call) const {
        return batches_[call - instance_.first_call];
    }
    [[nodiscard]] bool is_launched(std::uint32_t call) const { return joins_.launch(call) != NONE; }

    void join(std::uint32_t call, std::uint32_t launch, Rung rung) {
        const bool is_captured = is_of_graph(stream_.launches[launch]);
        join_call(joins_, call, launch, std::min(rung, is_captured ? best_of_graph_ : best_));
    }

    // A thread launches its calls before it calls again: an earlier waiting call with equal
    // arguments was captured, or never reaches a proxy. `due`: launches with these arguments before
    // the next call.
    std::uint32_t take_called(Queue &queue, const Launch &launch, std::uint32_t &due,
                              Rung &rung) const {
        drop_launched(queue);
        std::uint32_t best = NONE;
        std::uint32_t waiting = 0;
        const std::size_t end = first_later(queue.calls, launch.time_ns);
        for (std::size_t i = end; i > queue.first && end - i < MAX_LOOKED_AT; --i) {
            const std::uint32_t call = queue.calls[i - 1];
            if (best != NONE && batch_of(call) != batch_of(best))
                break;
            if (is_launched(call))
                continue;
            if (call_at(call).tid != launch.tid)
                return take_first(queue, launch, due, rung);
            best = call;
            rung = std::min(rung, i <= queue.guessed_end ? Rung::Inferred : Rung::Exact);
            if (++waiting == due)
                break;
        }
        due -= best != NONE && due > 1 ? 1 : 0;
        return best;
    }

    // Launches from here on, before the next call.
    void count_due(std::uint32_t first) {
        due_ = {};
        const std::uint32_t end = instance_.first_launch + instance_.n_launches;
        const std::size_t call = calls_before(stream_.launches[first].time_ns);
        const std::uint64_t until_ns = call < instance_.first_call + instance_.n_calls
                                           ? stream_.calls[call].time_ns
                                           : UINT64_MAX;
        for (due_until_ = first;
             due_until_ < end && stream_.launches[due_until_].time_ns < until_ns; ++due_until_)
            if (!is_of_graph(stream_.launches[due_until_]))
                count_tasks(stream_.launches[due_until_], due_);
    }

    void count_tasks(const Launch &launch, Due &due) const {
        std::set<std::uint32_t> seen;
        for (std::uint32_t i = 0; i < launch.n_tasks; ++i) {
            const cw_nccl_task_ref &task = stream_.tasks[launch.first_task + i];
            if (!seen.insert(task.task).second)
                continue;
            const cw_nccl_shape_task *described = shape_task(launch, i);
            if (is_part(described))
                ++due.parts[part_key(*described)];
            else
                ++due.tasks[task.arguments_hash];
        }
    }

    [[nodiscard]] std::size_t calls_before(std::uint64_t time_ns) const {
        const auto begin = stream_.calls.begin() + instance_.first_call;
        return static_cast<std::size_t>(std::lower_bound(begin, begin + instance_.n_calls, time_ns,
                                                         [](const Call &call, std::uint64_t time) {
                                                             return call.time_ns <= time;
                                                         }) -
                                        stream_.calls.begin());
    }

    // Another thread launches it: the first waiting call, which is certain only if no more wait
    // than are due.
    std::uint32_t take_first(Queue &queue, const Launch &launch, std::uint32_t &due,
                             Rung &rung) const {
        drop_launched(queue);
        std::size_t first = queue.first;
        if (is_of_graph(launch)) {
            queue.first_captured = std::max(queue.first_captured, queue.first);
            while (queue.first_captured < queue.calls.size() &&
                   !is_waiting(queue.calls[queue.first_captured], launch))
                ++queue.first_captured;
            first = queue.first_captured;
        }
        const std::size_t end = first_later(queue.calls, launch.time_ns);
        if (first >= end)
            return NONE;
        return take_of_waiting(queue, first, end, launch, due, rung);
    }

    // For this launch.
    [[nodiscard]] bool is_waiting(std::uint32_t call, const Launch &launch) const {
        return !is_launched(call) &&
               !(is_of_graph(launch) && uncaptured_.contains(instance_.stream, call));
    }

    // The call at `i`, which is the first waiting one.
    std::uint32_t take_of_waiting(Queue &queue, std::size_t i, std::size_t end,
                                  const Launch &launch, std::uint32_t &due, Rung &rung) const {
        std::uint32_t waiting = 1;
        for (std::size_t k = i + 1; k < end && waiting <= due; ++k) {
            if (k - i == MAX_LOOKED_AT)
                waiting = due + 1;
            else if (is_waiting(queue.calls[k], launch))
                ++waiting;
        }
        if (waiting > std::max(due, 1U)) {
            if (i >= queue.guessed_end)
                queue.guesses.push_back(i);
            queue.guessed_end = std::max(queue.guessed_end, end);
        }
        due -= due > 1 ? 1 : 0;
        rung = std::min(rung, i < queue.guessed_end ? Rung::Inferred : Rung::Exact);
        return queue.calls[i];
    }

    // Equal calls that were captured, all of them launched by plans that play in turn: each call
    // has the bytes of as many equal launches, whichever of them are its own.
    void settle_guesses() {
        if (best_of_graph_ != Rung::Exact)
            return;
        for (const auto &[hash, queue] : by_hash_)
            for (std::size_t i = 0; i < queue.guesses.size(); ++i)
                settle(queue, queue.guesses[i],
                       i + 1 < queue.guesses.size() ? queue.guesses[i + 1] : queue.guessed_end);
    }

    void settle(const Queue &queue, std::size_t begin, std::size_t end) {
        std::vector<std::uint32_t> calls, launches;
        for (std::size_t i = begin; i < end; ++i) {
            const CallJoin &join = joins_[queue.calls[i]];
            if ((join.launch != NONE && join.rung == Rung::Exact) ||
                uncaptured_.contains(instance_.stream, queue.calls[i]))
                continue;
            if (!is_captured(queue.calls[i]))
                return;
            calls.push_back(queue.calls[i]);
            launches.push_back(join.launch);
        }
        std::sort(launches.begin(), launches.end());
        launches.erase(std::unique(launches.begin(), launches.end()), launches.end());
        if (!plans_.play_in_turn(launches))
            return;
        for (const std::uint32_t call : calls) {
            CallJoin join = joins_[call];
            join.rung = Rung::Exact;
            joins_.set(call, join);
        }
    }

    void drop_launched(Queue &queue) const {
        while (queue.first < queue.calls.size() && is_launched(queue.calls[queue.first]))
            ++queue.first;
    }

    [[nodiscard]] std::size_t first_later(const std::vector<std::uint32_t> &calls,
                                          std::uint64_t time_ns) const {
        return static_cast<std::size_t>(
            std::upper_bound(calls.begin(), calls.end(), time_ns,
                             [&](std::uint64_t time, std::uint32_t call) {
                                 return time < call_at(call).time_ns;
                             }) -
            calls.begin());
    }

    [[nodiscard]] const cw_nccl_shape_task *shape_task(const Launch &launch,
                                                       std::uint32_t index) const {
        if (launch.shape_index == NONE)
            return nullptr;
        const Shape &shape = nccl_.shapes[launch.shape_index];
        return index < shape.tasks.size() && shape.tasks[index].header.length_bytes != 0
                   ? &shape.tasks[index]
                   : nullptr;
    }

    std::uint32_t take_part(const cw_nccl_shape_task &task, const Launch &launch,
                            std::uint32_t launch_index, std::uint32_t &due, Rung &rung) {
        const bool is_send = task.func == CW_NCCL_SEND;
        // The root of Gather receives, that of Scatter sends.
        const bool is_of_root = (task.api_func == CW_NCCL_GATHER) != is_send;
        const std::int32_t root = task.api_func == CW_NCCL_ALL_TO_ALL ? 0
                                  : is_of_root                        ? instance_.record.rank
                                                                      : task.root;
        const auto found = whole_.find({task.api_func, root, task.bytes});
        if (found == whole_.end())
            return NONE;
        Queue &calls = found->second;
        const std::vector<std::uint32_t> &all = calls.calls;
        const std::size_t end = first_later(all, launch.time_ns);
        PartQueue &queue = parts_[part_key(task)];
        if (is_of_graph(launch)) {
            while (queue.next_captured < end && is_launched(all[queue.next_captured]) &&
                   joins_.launch(all[queue.next_captured]) != launch_index)
                ++queue.next_captured;
            if (queue.next_captured >= end)
                return NONE;
            return take_of_waiting(calls, queue.next_captured++, end, launch, due, rung);
        }
        // As in take_called and take_first.
        if (queue.next < end && call_at(all[end - 1]).tid != launch.tid) {
            while (queue.next < end && is_captured(all[queue.next]))
                ++queue.next;
            if (queue.next == end)
                return NONE;
            return take_of_waiting(calls, queue.next++, end, launch, due, rung);
        }
        if (queue.next >= end)
            return NONE;
        const auto of_batch = std::lower_bound(
            all.begin(), all.begin() + static_cast<std::ptrdiff_t>(end), batch_of(all[end - 1]),
            [&](std::uint32_t call, std::uint32_t batch) { return batch_of(call) < batch; });
        const std::size_t i =
            std::max({queue.next, end - std::min<std::size_t>(end, std::max(due, 1U)),
                      static_cast<std::size_t>(of_batch - all.begin())});
        due -= due > 1 ? 1 : 0;
        queue.next = i + 1;
        rung = std::min(rung, i < calls.guessed_end ? Rung::Inferred : Rung::Exact);
        return all[i];
    }

    [[nodiscard]] bool is_captured(std::uint32_t call) const {
        return is_launched(call) && is_of_graph(stream_.launches[joins_.launch(call)]);
    }

    // Gives each task index of the launch its call. Equal addresses are one task.
    template <typename Take> void give_calls(const Launch &launch, const Take &take) {
        std::unordered_map<std::uint32_t, std::uint32_t> calls; // by address of the task
        for (std::uint32_t i = 0; i < launch.n_tasks; ++i) {
            const cw_nccl_task_ref &task = stream_.tasks[launch.first_task + i];
            const auto [found, is_new] = calls.try_emplace(task.task, NONE);
            if (is_new)
                found->second = take(task, shape_task(launch, i));
            task_calls_[launch.first_task + i] = found->second;
        }
    }

    // `take`: of the calls with equal arguments.
    template <typename Take>
    void give_due_calls(const Launch &launch, std::uint32_t index, Due &due, Take take) {
        give_calls(launch, [&](const cw_nccl_task_ref &task, const cw_nccl_shape_task *shape) {
            Rung rung = Rung::Exact;
            std::uint32_t call = NONE;
            if (is_part(shape))
                call = take_part(*shape, launch, index, due.parts[part_key(*shape)], rung);
            else if (const auto queue = by_hash_.find(task.arguments_hash); queue != by_hash_.end())
                call = (this->*take)(queue->second, launch, due.tasks[task.arguments_hash], rung);
            if (call != NONE)
                join(call, index, rung);
            return call;
        });
    }

    void match_tasks(const Launch &launch, std::uint32_t index) {
        if (index >= due_until_)
            count_due(index);
        give_due_calls(launch, index, due_, &Matcher::take_called);
    }

    // The first launch of a captured plan binds its calls, later ones repeat them.
    void match_captured(const Launch &launch, std::uint32_t index) {
        if (const std::uint32_t first = plans_.add(index); first != NONE) {
            const Launch of_plan = stream_.launches[first];
            Launch repeated = launch;
            repeated.n_tasks = std::min(launch.n_tasks, of_plan.n_tasks);
            repeated.first_task = of_plan.first_task;
            return stream_.launches.set(index, repeated);
        }
        Due due;
        count_tasks(launch, due);
        give_due_calls(launch, index, due, &Matcher::take_first);
    }

    static constexpr std::size_t MAX_LOOKED_AT = 1024;

    NcclFacts &nccl_;
    const Instance &instance_;
    const UncapturedCalls &uncaptured_;
    CommStream &stream_;
    CallJoins &joins_;
    std::vector<std::uint32_t> &task_calls_;
    bool is_older_;
    Rung best_;
    Rung best_of_graph_;
    std::vector<std::uint32_t> batches_;
    std::unordered_map<std::uint32_t, Queue> by_hash_;
    // Calls that are split into parts: function, root, and bytes to or from each peer.
    std::map<std::tuple<std::uint8_t, std::int32_t, std::uint64_t>, Queue> whole_;
    std::map<PartKey, PartQueue> parts_;
    Due due_;
    std::uint32_t due_until_ = 0; // launch
    CapturedPlans plans_;
};

bool has_graphs(const NcclFacts &nccl, const Instance &instance) {
    const LaunchList &launches = nccl.gathered.streams[instance.stream].launches;
    for (std::uint32_t i = 0; i < instance.n_launches; ++i)
        if (is_of_graph(launches[instance.first_launch + i]))
            return true;
    return false;
}

// Of communicators whose graphs were launched.
UncapturedCalls find_uncaptured(Model &model) {
    UncapturedCalls none, found;
    for (const Communicator &comm : model.nccl.communicators) {
        const auto of = [&](Index index) -> const Instance & {
            return model.nccl.instances[index];
        };
        const auto may_tell = [&](Index index) {
            return of(index).created && !is_older(model.nccl, of(index));
        };
        if (std::ranges::count_if(comm.instances, may_tell) < 2 ||
            std::ranges::none_of(comm.instances,
                                 [&](Index index) { return has_graphs(model.nccl, of(index)); }))
            continue;
        for (const Index index : comm.instances)
            Matcher(model, model.nccl.instances[index], none).note_uncaptured(found);
        found.share(model.nccl, comm);
    }
    return found;
}

void count_calls(NcclFacts &nccl, Instance &instance) {
    const CommStream &stream = nccl.gathered.streams[instance.stream];
    std::uint32_t collectives = 0;
    for (std::uint32_t i = instance.first_call; i < instance.first_call + instance.n_calls; ++i) {
        const Call &call = stream.calls[i];
        instance.returned_calls += (call.flags & CW_NCCL_CALL_RETURNED) != 0 ? 1 : 0;
        if (is_failed(call)) {
            ++instance.failed_calls;
            continue;
        }
        collectives += is_collective(call.func) ? 1 : 0;
    }
    instance.n_collectives = collectives;
}

} // namespace

void match_calls(Model &model) {
    NcclFacts &nccl = model.nccl;
    nccl.call_joins.resize(nccl.gathered.streams.size());
    nccl.task_calls.resize(nccl.gathered.streams.size());
    for (std::size_t i = 0; i < nccl.gathered.streams.size(); ++i) {
        nccl.call_joins[i] = CallJoins(nccl.gathered.streams[i].calls.size());
        nccl.task_calls[i].assign(nccl.gathered.streams[i].tasks.size(), NONE);
    }
    const UncapturedCalls uncaptured = find_uncaptured(model);
    OlderReport older;
    for (Instance &instance : nccl.instances) {
        count_calls(nccl, instance);
        Matcher(model, instance, uncaptured).run(older);
    }
    for (CommStream &stream : nccl.gathered.streams)
        stream.tasks = {};
    for (Shape &shape : nccl.shapes)
        shape.older_facts = {};
}

} // namespace collwire::nccl
