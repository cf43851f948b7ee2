// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/match_older.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_launch_records.h"
#include "correlate/model/address.h"
#include "correlate/nccl/captured_plans.h"
#include "correlate/nccl/describe.h"
#include "correlate/nccl/older_plan.h"
#include "correlate/nccl/resolve.h"

namespace collwire::nccl {

namespace {

constexpr std::size_t MOST_WAITING = 4096;
constexpr std::size_t FEW_WAITING = 64; // once the comparison limit is used up
constexpr std::size_t MOST_WINDOWS = 64;

class OlderMatcher {
public:
    OlderMatcher(NcclFacts &nccl, const Instance &instance, Rung best, OlderReport &report)
        : nccl_(nccl), instance_(instance), stream_(nccl.gathered.streams[instance.stream]),
          joins_(nccl.call_joins[instance.stream]), task_calls_(nccl.task_calls[instance.stream]),
          best_(best), looks_left_(report.looks_left), plans_(nccl, instance, best) {
        is_counted_ = !instance.is_shared();
        if ((instance.record.flags & CW_NCCL_COMM_LAUNCHED) != 0)
            launched_before_ = instance.record.launched;
        make_rules(report.channels);
    }

    void run() {
        for (std::uint32_t i = 0; i < instance_.n_launches; ++i)
            match(instance_.first_launch + i);
        plans_.finish(likeness, {});
    }

private:
    using Calls = std::vector<std::uint32_t>;

    [[nodiscard]] Call call_at(std::uint32_t i) const { return stream_.calls[i]; }

    // Of the process; 0: not recorded. NCCL reads it once.
    [[nodiscard]] std::int64_t parameter(std::string_view name) const {
        return parameter_of(nccl_, instance_.session, instance_.record.tgid, name).value_or(0);
    }

    void make_rules(std::map<Index, ChannelsSeen> &channels) {
        set_threads(rules_, parameter("Nthreads"), parameter("Ll128Nthreads"));
        rules_.version = instance_.version;
        rules_.n_ranks = instance_.record.n_ranks;
        rules_.is_one_rank_a_node =
            instance_.record.n_nodes > 0 && instance_.record.n_nodes == instance_.record.n_ranks;
        if (instance_.comm == NONE)
            return;
        const auto [known, is_new] = channels.try_emplace(instance_.comm);
        if (is_new)
            known->second = look_at_channels();
        rules_.channels_seen = known->second.channels;
        if (rules_.channels_seen != 0 && known->second.of_all_ranks)
            rules_.most_channels = rules_.channels_seen;
    }

    [[nodiscard]] ChannelsSeen look_at_channels() const {
        std::set<std::int32_t> ranks;
        std::unordered_set<Index> shapes;
        for (const Index index : nccl_.communicators[instance_.comm].instances) {
            const Instance &other = nccl_.instances[index];
            ranks.insert(other.record.rank);
            const LaunchList &launches = nccl_.gathered.streams[other.stream].launches;
            for (std::uint32_t i = 0; i < other.n_launches; ++i)
                if (const Index shape = launches[other.first_launch + i].shape_index; shape != NONE)
                    shapes.insert(shape);
        }
        ChannelsSeen seen;
        for (const Index shape : shapes)
            if (!nccl_.shapes[shape].is_p2p)
                for (const ShapeOp &op : nccl_.shapes[shape].ops)
                    seen.channels =
                        std::max<std::uint32_t>(seen.channels, std::uint32_t{op.channel} + 1);
        seen.of_all_ranks =
            ranks.size() == static_cast<std::size_t>(std::max(instance_.record.n_ranks, 0));
        return seen;
    }

    // ---- the calls of a launch

    void look_at(std::size_t n) { looks_left_ -= std::min<std::uint64_t>(looks_left_, n); }

    void match(std::uint32_t index) {
        Launch launch = stream_.launches[index];
        const bool is_captured = (launch.flags & CW_NCCL_LAUNCH_GRAPH) != 0;
        const std::size_t before = waiting_.size();
        add_called_until(launch.time_ns);
        const Known counted = count_launched(launch);
        if (is_captured)
            if (const std::uint32_t first = plans_.add(index); first != NONE) {
                repeat(launch, stream_.launches[first]);
                return stream_.launches.set(index, launch);
            }
        // A thread's calls since its last launch are what it launches now.
        is_called_here_ =
            !is_captured && waiting_.size() > before &&
            std::all_of(waiting_.begin() + static_cast<std::ptrdiff_t>(before), waiting_.end(),
                        [&](std::uint32_t call) { return call_at(call).tid == launch.tid; });
        if (is_called_here_)
            candidates_.assign(waiting_.begin() + static_cast<std::ptrdiff_t>(before),
                               waiting_.end());
        else
            candidates_ = waiting_;
        look_at(waiting_.size());
        choose(launch, index, counted);
        stream_.launches.set(index, launch);
        forget();
        if (is_captured)
            plans_.set_calls(chosen_);
    }

    void add_called_until(std::uint64_t time_ns) {
        for (; next_call_ < instance_.n_calls; ++next_call_) {
            const std::uint32_t call = instance_.first_call + next_call_;
            if (call_at(call).time_ns > time_ns)
                break;
            if (!never_launches(call_at(call), instance_))
                waiting_.push_back(call);
        }
        const std::size_t most = looks_left_ != 0 ? MOST_WAITING : FEW_WAITING;
        if (waiting_.size() > 2 * most)
            waiting_.erase(waiting_.begin(), waiting_.end() - static_cast<std::ptrdiff_t>(most));
    }

    // Number of collectives in a launch, by NCCL's own count.
    Known count_launched(const Launch &launch) {
        if ((launch.flags & CW_NCCL_LAUNCH_LAUNCHED) == 0)
            return std::nullopt;
        const Known before = std::exchange(launched_before_, launch.launched);
        if (!is_counted_ || !before || launch.launched < *before)
            return std::nullopt;
        return launch.launched - *before;
    }

    static void repeat(Launch &launch, const Launch &first) {
        launch.first_task = first.first_task;
        launch.n_tasks = first.n_tasks;
        launch.shape_index = first.shape_index;
    }

    // All arguments except the buffers, which launches do not contain.
    static std::uint64_t likeness(const Call &call) {
        std::uint64_t like = call.count;
        for (const std::uint64_t value :
             {std::uint64_t{call.func} << 8U | call.datatype,
              std::uint64_t{static_cast<std::uint32_t>(call.root)} << 32U |
                  static_cast<std::uint32_t>(call.reduction)})
            like = model::mix(like) ^ value;
        return like;
    }

    void choose(Launch &launch, std::uint32_t index, const Known &counted) {
        chosen_.clear();
        Calls collectives;
        for (const std::uint32_t call : candidates_)
            if (is_collective(call_at(call).func))
                collectives.push_back(call);
        std::size_t wanted = counted                              ? *counted
                             : count_ops(launch.shape_index) == 0 ? 0
                             : is_called_here_                    ? collectives.size()
                                                                  : 1;
        wanted = std::min(wanted, collectives.size());
        const bool is_all = wanted == 0 || wanted == collectives.size();
        // The last calls or, if others may have called since, the longest waiting one. Certain only
        // if no other waiting call fits.
        const std::size_t windows = looks_left_ == 0 ? 0
                                    : is_all
                                        ? 1
                                        : std::min(collectives.size() - wanted + 1, MOST_WINDOWS);
        Index found = NONE;
        bool is_choice = false;
        Calls calls;
        std::size_t fitting = 0;
        for (std::size_t i = 0; i < windows && fitting < 2; ++i) {
            const std::size_t first = is_called_here_ ? collectives.size() - wanted - i : i;
            const auto begin = collectives.begin() + static_cast<std::ptrdiff_t>(first);
            const Index shape = with_calls(
                launch.shape_index, Calls(begin, begin + static_cast<std::ptrdiff_t>(wanted)));
            if (shape == NONE)
                continue;
            if (fitting++ == 0) {
                found = shape;
                is_choice = is_choice_;
                calls = variant_calls_;
                if (is_called_here_ && i == 0)
                    break;
            }
        }
        if (found == NONE)
            return choose_by_order(launch, index, collectives, wanted, is_all && looks_left_ != 0);
        const bool is_counted = counted || is_called_here_ || wanted == 0;
        launch.shape_index = found;
        give(launch, index, calls,
             !is_choice && is_counted && fitting == 1 ? Rung::Exact : Rung::Inferred);
    }

    // The operations do not separate the candidates.
    void choose_by_order(Launch &launch, std::uint32_t index, const Calls &collectives,
                         std::size_t wanted, bool is_all) {
        const Shape *shape =
            launch.shape_index == NONE ? nullptr : &nccl_.shapes[launch.shape_index];
        const std::size_t n_tasks =
            shape == nullptr ? 0 : std::min<std::size_t>(shape->tasks.size(), UINT16_MAX);
        const bool is_single = is_all && wanted == 1;
        const Calls first(collectives.begin(),
                          collectives.begin() + static_cast<std::ptrdiff_t>(wanted));
        std::map<std::pair<std::uint8_t, std::int32_t>, std::uint32_t> transfers;
        for (const std::uint32_t call : candidates_)
            if (is_p2p(call_at(call).func))
                transfers.try_emplace({call_at(call).func, call_at(call).root}, call);
        Calls calls(n_tasks, NONE);
        for (std::size_t task = 0; task < n_tasks; ++task) {
            const cw_nccl_shape_task &described = shape->tasks[task];
            if (!is_p2p(described.func)) {
                calls[task] = first.empty() ? NONE : first.front();
                continue;
            }
            if (const auto found = transfers.find({described.func, described.root});
                found != transfers.end())
                calls[task] = found->second;
        }
        give(launch, index, calls, is_single && n_tasks == 1 ? Rung::Exact : Rung::Inferred);
        for (const std::uint32_t call : first)
            if (std::find(chosen_.begin(), chosen_.end(), call) == chosen_.end()) {
                join(call, index, is_single ? Rung::Exact : Rung::Inferred);
                chosen_.push_back(call);
            }
    }

    // Makes a task for each of these calls.
    void give(Launch &launch, std::uint32_t index, const Calls &calls, Rung rung) {
        launch.first_task = static_cast<std::uint32_t>(task_calls_.size());
        launch.n_tasks =
            static_cast<std::uint16_t>(std::min<std::size_t>(calls.size(), UINT16_MAX));
        task_calls_.insert(task_calls_.end(), calls.begin(), calls.begin() + launch.n_tasks);
        for (const std::uint32_t call : calls)
            if (call != NONE) {
                join(call, index, rung);
                chosen_.push_back(call);
            }
    }

    void join(std::uint32_t call, std::uint32_t launch, Rung rung) {
        join_call(joins_, call, launch, std::min(rung, best_));
    }

    // Launched calls no longer wait. Nor does a thread's send or receive right before: it reaches
    // no proxy.
    void forget() {
        Calls gone = chosen_;
        std::sort(gone.begin(), gone.end());
        const auto has = [](const Calls &sorted, std::uint32_t call) {
            return std::binary_search(sorted.begin(), sorted.end(), call);
        };
        std::erase_if(waiting_, [&](std::uint32_t call) {
            return has(gone, call) ||
                   (is_called_here_ && is_p2p(call_at(call).func) && has(candidates_, call));
        });
    }

    // ---- the launch's operations

    std::size_t count_ops(Index shape) const {
        if (shape == NONE)
            return 0;
        const std::vector<OpFacts> &all = nccl_.shapes[shape].older_facts;
        return static_cast<std::size_t>(
            std::count_if(all.begin(), all.end(), [](const OpFacts &facts) {
                return facts.n_ranks != 0 && !is_transfer(facts);
            }));
    }

    static bool is_transfer(const OpFacts &facts) {
        return facts.op.pattern == CW_NCCL_PATTERN_SEND || facts.op.pattern == CW_NCCL_PATTERN_RECV;
    }

    [[nodiscard]] OlderCall planned(std::uint32_t call) const {
        const Call &from = call_at(call);
        return {from.func, from.datatype, from.root, from.reduction, from.count};
    }
    [[nodiscard]] std::vector<OlderCall> planned(const Calls &calls) const {
        std::vector<OlderCall> all;
        for (const std::uint32_t call : calls)
            all.push_back(planned(call));
        return all;
    }

    // The shape for a launch of these collectives and of waiting sends and receives. NONE: NCCL
    // would make other operations of these calls. variant_calls_: of its tasks.
    Index with_calls(Index shape_index, const Calls &collectives) {
        variant_calls_ = collectives;
        is_choice_ = false;
        if (shape_index == NONE || nccl_.shapes[shape_index].older_facts.empty())
            return NONE;
        const Shape &shape = nccl_.shapes[shape_index];
        const std::vector<OpFacts> &facts = shape.older_facts;
        look_at(facts.size() + collectives.size());
        std::map<std::pair<bool, std::int32_t>, std::vector<std::size_t>> transfers;
        std::vector<std::size_t> ops;
        for (std::size_t i = 0; i < facts.size(); ++i) {
            if (facts[i].n_ranks == 0) {
                if (!shape.ops[i].is_local)
                    return NONE;
            } else if (is_transfer(facts[i])) {
                transfers[{facts[i].is_send, facts[i].op.root}].push_back(i);
            } else {
                ops.push_back(i);
            }
        }
        std::vector<Calls> of_transfers;
        for (const auto &[peer, of_peer] : transfers) {
            of_transfers.push_back(calls_with(peer.first, peer.second, of_peer.size()));
            variant_calls_.insert(variant_calls_.end(), of_transfers.back().begin(),
                                  of_transfers.back().end());
        }
        const auto [known, is_new] =
            variants_.try_emplace(std::pair(shape_index, planned(variant_calls_)), NONE);
        if (!is_new)
            return known->second;
        Shape made = shape;
        made.older_facts = {};
        made.tasks.clear();
        made.task_channels.clear();
        if (!ops.empty() &&
            !place(made, facts, ops, 0,
                   place_collectives(rules_, planned(collectives), facts_of(facts, ops))))
            return NONE;
        auto first = static_cast<std::uint32_t>(collectives.size());
        std::size_t at = 0;
        for (const auto &[peer, of_peer] : transfers) {
            const Calls &calls = of_transfers[at++];
            if (!place(made, facts, of_peer, first,
                       place_transfers(rules_, instance_.record.n_nodes == 1, planned(calls),
                                       facts_of(facts, of_peer))))
                return NONE;
            first += static_cast<std::uint32_t>(calls.size());
        }
        for (const std::uint32_t call : variant_calls_)
            made.tasks.push_back(task_of(call));
        describe(made, facts);
        known->second = static_cast<Index>(nccl_.shapes.size());
        nccl_.shapes.push_back(std::move(made));
        return known->second;
    }

    // Sends to a peer, or receives from it: all of a thread's calls right before, else one.
    Calls calls_with(bool is_send, std::int32_t peer, std::size_t n_ops) {
        Calls calls;
        look_at(candidates_.size());
        for (const std::uint32_t call : candidates_) {
            if (call_at(call).func != (is_send ? CW_NCCL_SEND : CW_NCCL_RECV) ||
                call_at(call).root != peer)
                continue;
            if (calls.size() == (is_called_here_ ? n_ops : 1)) {
                is_choice_ = true;
                break;
            }
            calls.push_back(call);
        }
        return calls;
    }

    static std::vector<OpFacts> facts_of(const std::vector<OpFacts> &facts,
                                         const std::vector<std::size_t> &ops) {
        std::vector<OpFacts> some;
        some.reserve(ops.size());
        for (const std::size_t i : ops)
            some.push_back(facts[i]);
        return some;
    }

    static bool place(Shape &shape, const std::vector<OpFacts> &facts,
                      const std::vector<std::size_t> &ops, std::uint32_t first_task,
                      const std::optional<std::vector<OlderOp>> &found) {
        if (!found)
            return false;
        for (std::size_t i = 0; i < ops.size(); ++i) {
            ShapeOp &op = shape.ops[ops[i]];
            const OlderOp &of = (*found)[i];
            op.task = first_task + of.call;
            op.is_known = of.bytes.has_value();
            op.is_bound = !of.bytes || of.bytes->is_bound;
            op.payload_bytes = of.bytes ? of.bytes->payload_bytes
                                        : model::multiply_saturating(facts[ops[i]].op.nsteps,
                                                                     facts[ops[i]].op.nbytes);
            op.data_bytes = of.bytes ? of.bytes->data_bytes : 0;
            op.messages = of.bytes ? of.bytes->messages : 0;
        }
        return true;
    }

    [[nodiscard]] cw_nccl_shape_task task_of(std::uint32_t call) const {
        const Call &from = call_at(call);
        cw_nccl_shape_task task{};
        task.header.length_bytes = sizeof(task);
        task.func = task.api_func = from.func;
        task.count = from.count;
        task.root = from.root;
        task.reduction = from.reduction;
        task.datatype = from.datatype;
        task.algorithm = CW_NCCL_ALGORITHM_UNKNOWN;
        task.protocol = CW_NCCL_PROTOCOL_UNKNOWN;
        return task;
    }

    static void describe(Shape &shape, const std::vector<OpFacts> &facts) {
        for (std::size_t i = 0; i < shape.ops.size(); ++i) {
            if (facts[i].n_ranks == 0 || shape.ops[i].task >= shape.tasks.size())
                continue;
            cw_nccl_shape_task &task = shape.tasks[shape.ops[i].task];
            task.protocol = facts[i].op.protocol;
            if (!is_transfer(facts[i]))
                task.algorithm = facts[i].op.pattern == CW_NCCL_PATTERN_TREE_UP_DOWN ? CW_NCCL_TREE
                                                                                     : CW_NCCL_RING;
        }
    }

    NcclFacts &nccl_;
    const Instance &instance_;
    CommStream &stream_;
    CallJoins &joins_;
    std::vector<std::uint32_t> &task_calls_;
    Rung best_;
    std::uint64_t &looks_left_;
    OlderRules rules_;
    bool is_counted_ = false;
    Known launched_before_;
    std::uint32_t next_call_ = 0;
    Calls waiting_;               // called and not launched yet
    Calls candidates_;            // of those, the candidates for this launch
    bool is_called_here_ = false; // the candidates are the launching thread's last calls
    Calls chosen_;
    Calls variant_calls_;
    bool is_choice_ = false; // other waiting sends or receives could match
    std::map<std::pair<Index, std::vector<OlderCall>>, Index> variants_;
    CapturedPlans plans_;
};

} // namespace

bool is_older(const NcclFacts &nccl, const Instance &instance) {
    if (instance.is_calls_only)
        return false; // its launches are assumed, with tasks
    if (instance.version != 0)
        return instance.version < FIRST_VERSION_WITH_TASKS;
    const LaunchList &launches = nccl.gathered.streams[instance.stream].launches;
    for (std::uint32_t i = 0; i < instance.n_launches; ++i)
        if (const Index shape = launches[instance.first_launch + i].shape_index; shape != NONE)
            return nccl.shapes[shape].is_older;
    return false;
}

void match_older(NcclFacts &nccl, const Instance &instance, Rung best, OlderReport &report) {
    OlderMatcher(nccl, instance, best, report).run();
}

} // namespace collwire::nccl
