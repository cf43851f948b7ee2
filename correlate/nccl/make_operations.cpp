// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <tuple>

#include "collwire/nccl_launch_records.h"
#include "correlate/capture/nccl_names.h"
#include "correlate/nccl/common_clock.h"
#include "correlate/nccl/cut_launches.h"
#include "correlate/nccl/number_pairs.h"
#include "correlate/nccl/open_groups.h"
#include "correlate/nccl/resolve.h"

namespace collwire::nccl {

using model::Model;

namespace {

// Calls of one instance that are numbered together, in order.
struct Calls {
    Index instance = NONE;
    std::vector<std::uint32_t> calls;
    std::uint64_t first_number = 0;
    SeqBase base = SeqBase::Recording;
};

// Sends of a rank to another, or the receives there, before or after the first possibly missing
// call.
struct PairCalls : Calls {
    bool is_send = false;
    bool may_miss = false;
};

// Consecutive numbers from `begin` on with their owners: each is an operation.
struct Range {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::vector<Calls> calls;
    Index comm = NONE;
    bool is_pair = false;
    std::int32_t source = -1; // of a pair
    std::int32_t destination = -1;
    std::vector<std::uint32_t> repeats; // by number: a captured call counts once for each launch
};

// The largest equal limit for which the total stays within `most`; small requests leave their
// remainder to the others.
std::uint32_t fair_share(std::vector<std::uint32_t> wanted, std::uint64_t most) {
    std::sort(wanted.begin(), wanted.end());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        const std::uint64_t share = most / (wanted.size() - i);
        if (wanted[i] > share)
            return static_cast<std::uint32_t>(share);
        most -= wanted[i];
    }
    return UINT32_MAX;
}

class Maker {
public:
    explicit Maker(Model &model)
        : model_(model), nccl_(model.nccl), clock_(model), open_groups_(model),
          cut_launches_(model) {}

    void run(std::uint64_t most_replays) {
        for (Index comm = 0; comm < nccl_.communicators.size(); ++comm) {
            number_collectives(comm);
            number_p2p(comm);
        }
        leave_out_replays(most_replays);
        reserve();
        for (const Range &range : ranges_)
            add_operations(range, range.is_pair ? nccl_.p2p : nccl_.collectives);
        for (std::vector<Operation> *operations : {&nccl_.collectives, &nccl_.p2p})
            for (Operation &operation : *operations)
                complete(operation);
    }

private:
    [[nodiscard]] const CommStream &stream_of(Index instance) const {
        return nccl_.gathered.streams[nccl_.instances[instance].stream];
    }
    [[nodiscard]] CallJoins &joins_of(Index instance) {
        return nccl_.call_joins[nccl_.instances[instance].stream];
    }
    [[nodiscard]] bool is_captured(Index instance, const CallJoin &join) const {
        return join.launch != NONE &&
               (stream_of(instance).launches[join.launch].flags & CW_NCCL_LAUNCH_GRAPH) != 0;
    }

    template <typename Wanted> std::vector<std::uint32_t> calls_of(Index index, Wanted wanted) {
        const Instance &instance = nccl_.instances[index];
        std::vector<std::uint32_t> calls;
        for (std::uint32_t i = instance.first_call; i < instance.first_call + instance.n_calls; ++i)
            if (const Call &call = stream_of(index).calls[i]; !is_failed(call) && wanted(call))
                calls.push_back(i);
        return calls;
    }

    void number_collectives(Index comm) {
        std::vector<Calls> joined;
        std::vector<std::vector<Calls>> alone;
        next_number_.clear();
        for (const Index index : nccl_.communicators[comm].instances) {
            const Instance &instance = nccl_.instances[index];
            Calls calls{index,
                        calls_of(index, [](const Call &call) { return is_collective(call.func); }),
                        instance.seq_of_first, instance.seq_base};
            std::uint32_t next = 0;
            for (const SeqRun &run : instance.runs) {
                add_alone(alone, part_of(calls, next, run.first));
                next = run.first + run.n;
                if (run.base == SeqBase::Recording) {
                    add_alone(alone, part_of(calls, run.first, next));
                    continue;
                }
                joined.push_back(part_of(calls, run.first, next));
                joined.back().first_number = run.seq;
                joined.back().base = run.base;
            }
            if (next != 0)
                calls = part_of(calls, next, calls.calls.size());
            if (!instance.is_joined || !instance.runs.empty() || calls.base == SeqBase::Recording)
                add_alone(alone, std::move(calls));
            else if (!calls.calls.empty())
                joined.push_back(std::move(calls));
        }
        Range like;
        like.comm = comm;
        add_ranges(like, std::move(joined));
        for (std::vector<Calls> &calls : alone)
            add_ranges(like, std::move(calls));
    }

    static Calls part_of(const Calls &calls, std::size_t begin, std::size_t end) {
        return {calls.instance,
                {calls.calls.begin() + static_cast<std::ptrdiff_t>(begin),
                 calls.calls.begin() + static_cast<std::ptrdiff_t>(end)},
                calls.first_number,
                calls.base};
    }

    // Listed by their rank, so no two calls of one rank may share a number.
    void add_alone(std::vector<std::vector<Calls>> &alone, Calls calls) {
        if (calls.calls.empty())
            return;
        std::uint64_t &next = next_number_[nccl_.instances[calls.instance].record.rank];
        calls.base = SeqBase::Recording;
        calls.first_number = next;
        next += calls.calls.size();
        alone.push_back({std::move(calls)});
    }

    // Equally numbered calls, by number.
    void add_ranges(const Range &like, std::vector<Calls> all) {
        std::stable_sort(all.begin(), all.end(), [](const Calls &a, const Calls &b) {
            return a.first_number < b.first_number;
        });
        const std::size_t first = ranges_.size();
        for (Calls &calls : all) {
            const std::uint64_t end = calls.first_number + calls.calls.size();
            if (ranges_.size() == first || calls.first_number > ranges_.back().end) {
                ranges_.push_back(like);
                ranges_.back().begin = calls.first_number;
            }
            ranges_.back().end = std::max(ranges_.back().end, end);
            ranges_.back().calls.push_back(std::move(calls));
        }
        for (std::size_t i = first; i < ranges_.size(); ++i)
            count_repeats(ranges_[i]);
    }

    void count_repeats(Range &range) {
        range.repeats.assign(range.end - range.begin, 1);
        for (const Calls &calls : range.calls)
            for (std::size_t i = 0; i < calls.calls.size(); ++i)
                if (const CallJoin &join = joins_of(calls.instance)[calls.calls[i]];
                    is_captured(calls.instance, join)) {
                    std::uint32_t &most = range.repeats[calls.first_number + i - range.begin];
                    most = std::max(most, join.launches);
                }
    }

    // Each call keeps its first replay.
    void leave_out_replays(std::uint64_t most_replays) {
        std::vector<std::uint32_t> wanted;
        for (const Range &range : ranges_)
            for (const std::uint32_t repeats : range.repeats)
                if (repeats > 1)
                    wanted.push_back(repeats - 1);
        const std::uint64_t share = fair_share(std::move(wanted), most_replays);
        for (Range &range : ranges_)
            for (std::uint32_t &repeats : range.repeats)
                if (repeats > share + 1) {
                    nccl_.replays_left_out += repeats - (share + 1);
                    repeats = static_cast<std::uint32_t>(share + 1);
                }
    }

    void reserve() {
        std::uint64_t collectives = 0;
        std::uint64_t p2p = 0;
        for (const Range &range : ranges_)
            for (const std::uint32_t repeats : range.repeats)
                (range.is_pair ? p2p : collectives) += repeats;
        nccl_.collectives.reserve(collectives);
        nccl_.p2p.reserve(p2p);
    }

    void add_operations(const Range &range, std::vector<Operation> &into) {
        std::vector<Index> first; // operation, by number
        first.reserve(range.repeats.size());
        Operation operation;
        operation.comm = range.comm;
        operation.source = range.source;
        operation.destination = range.destination;
        for (std::uint64_t i = 0; i < range.repeats.size(); ++i) {
            first.push_back(static_cast<Index>(into.size()));
            operation.seq = range.begin + i;
            for (operation.replay = 0; operation.replay < range.repeats[i]; ++operation.replay)
                into.push_back(operation);
        }
        const std::vector<bool> ended = ended_before_next_call(range);
        for (const Calls &calls : range.calls)
            take_calls(into, range, calls, first, ended);
    }

    // In reverse, since knowledge about a group applies to its earlier calls. `ended`:
    // ended_before_next_call.
    void take_calls(std::vector<Operation> &into, const Range &range, const Calls &calls,
                    const std::vector<Index> &first, const std::vector<bool> &ended) {
        const Instance &instance = nccl_.instances[calls.instance];
        const bool is_between_nodes = !range.is_pair || is_between_known_nodes(range);
        bool has_ended = false; // the group of the call
        for (std::size_t i = calls.calls.size(); i-- > 0;) {
            const Call &call = stream_of(calls.instance).calls[calls.calls[i]];
            CallJoin join = joins_of(calls.instance)[calls.calls[i]];
            const std::uint64_t number = calls.first_number + i;
            const std::uint32_t repeats = range.repeats[number - range.begin];
            join.operation = first[number - range.begin];
            join.launches = std::min(join.launches, repeats);
            joins_of(calls.instance).set(calls.calls[i], join);
            const bool captured = is_captured(calls.instance, join);
            const std::uint64_t called_ns = model_.hosts[instance.host].realtime_ns(call.time_ns);
            const bool is_waited_for =
                join.launch == NONE && may_launch(instance, call) && !instance.is_calls_only;
            const bool may_be_lost =
                is_waited_for && call.time_ns >= instance.launches_whole_until_ns;
            const bool may_be_cut = is_perhaps_cut(calls.instance, call, join, is_waited_for);
            bool may_come = false;
            if (open_groups_.may_hold(calls.instance, call)) {
                has_ended =
                    is_before_same_thread(calls, i) && (has_ended || ended[number - range.begin]);
                may_come = is_waited_for && !has_ended;
            }
            for (std::uint32_t replay = 0; replay < repeats; ++replay) {
                Operation &operation = into[join.operation + replay];
                take_call(operation, instance, call, called_ns, captured, calls.base);
                if (may_be_lost || may_come || (captured && replay >= join.launches) ||
                    lacks_a_part(instance, call, join))
                    operation.flags |= OPERATION_PARTIAL;
                if (may_be_cut)
                    operation.flags |= OPERATION_TRUNCATED | OPERATION_PARTIAL;
                if (may_be_lost || may_be_cut)
                    operation.rung = std::min(operation.rung, Rung::Inferred);
                if (may_lack_records(instance, call, captured))
                    operation.flags |= OPERATION_LACKS_RECORDS;
                if (is_between_nodes && call.count != 0 && may_launch(instance, call))
                    operation.crosses_nodes = true;
            }
        }
    }

    [[nodiscard]] bool is_perhaps_cut(Index instance, const Call &call, const CallJoin &join,
                                      bool is_waited_for) {
        // A call that is split into sends and receives may be launched in parts.
        const bool is_of_parts = is_made_of_parts(call.func);
        if ((join.launch == NONE ? is_waited_for : is_of_parts) &&
            cut_launches_.may_hold(instance, call))
            return true;
        return join.launch != NONE &&
               (stream_of(instance).launches[join.launch].flags & CW_NCCL_LAUNCH_TRUNCATED) != 0;
    }

    [[nodiscard]] bool may_launch(const Instance &instance, const Call &call) const {
        return !never_launches(call, instance) && nccl_.communicators[instance.comm].n_nodes != 1;
    }

    [[nodiscard]] bool is_between_known_nodes(const Range &pair) const {
        const std::int32_t from = node_of(pair.comm, pair.source);
        const std::int32_t to = node_of(pair.comm, pair.destination);
        return from >= 0 && to >= 0 && from != to;
    }

    // -1: not known
    [[nodiscard]] std::int32_t node_of(Index comm, std::int32_t rank) const {
        const std::vector<Index> &instances = nccl_.communicators[comm].instances;
        const auto found = std::lower_bound(instances.begin(), instances.end(), rank,
                                            [this](Index index, std::int32_t wanted) {
                                                return nccl_.instances[index].record.rank < wanted;
                                            });
        return found == instances.end() || nccl_.instances[*found].record.rank != rank
                   ? -1
                   : nccl_.instances[*found].record.node;
    }

    // For API-only calls: some or all of the destinations are not known.
    [[nodiscard]] bool lacks_a_part(const Instance &instance, const Call &call,
                                    const CallJoin &join) const {
        return instance.is_calls_only && may_launch(instance, call) &&
               (instance.lacks_links || (join.launch == NONE && call.func != CW_NCCL_RECV));
    }

    // The graph of a captured call may be launched at any time after it.
    static bool may_lack_records(const Instance &instance, const Call &call, bool captured) {
        return instance.operations_rung == Rung::Process || instance.is_calls_only ||
               (captured ? instance.whole_until_ns != UINT64_MAX
                         : call.time_ns >= instance.whole_until_ns);
    }

    [[nodiscard]] bool is_before_same_thread(const Calls &calls, std::size_t i) const {
        const CallList &all = stream_of(calls.instance).calls;
        return i + 1 < calls.calls.size() && all[calls.calls[i]].tid == all[calls.calls[i + 1]].tid;
    }

    // By number. All ranks put collectives in the same groups: if a rank launched one before its
    // next call, the group does not include that call.
    [[nodiscard]] std::vector<bool> ended_before_next_call(const Range &range) {
        std::vector<bool> ended(range.repeats.size());
        if (range.is_pair)
            return ended;
        for (const Calls &calls : range.calls) {
            const CommStream &stream = stream_of(calls.instance);
            const CallJoins &joins = joins_of(calls.instance);
            for (std::size_t i = 0; i + 1 < calls.calls.size(); ++i)
                if (const std::uint32_t launch = joins.launch(calls.calls[i]);
                    launch != NONE && is_before_same_thread(calls, i) &&
                    stream.launches[launch].time_ns < stream.calls[calls.calls[i + 1]].time_ns)
                    ended[calls.first_number + i - range.begin] = true;
        }
        return ended;
    }

    static void take_call(Operation &operation, const Instance &instance, const Call &call,
                          std::uint64_t called_ns, bool captured, SeqBase base) {
        const bool is_first = operation.ranks++ == 0;
        if (is_first) {
            operation.func = call.func;
            operation.count = call.count;
            operation.datatype = call.datatype;
            operation.reduction = call.reduction;
            operation.root = call.root;
            operation.called_realtime_ns = called_ns;
        } else if (!is_p2p(call.func) &&
                   (operation.func != call.func || operation.datatype != call.datatype ||
                    operation.root != call.root ||
                    (operation.count != call.count && call.func != CW_NCCL_ALL_GATHER_V))) {
            operation.flags |= OPERATION_DIFFERS;
        }
        if (captured)
            operation.flags |= OPERATION_CAPTURED;
        operation.called_realtime_ns = std::min(operation.called_realtime_ns, called_ns);
        operation.seq_base = std::min(operation.seq_base, base);
        if (base == SeqBase::Recording)
            operation.rank = instance.record.rank;
        if (is_p2p(call.func))
            operation.flags |= call.func == CW_NCCL_SEND ? OPERATION_SENT : OPERATION_RECEIVED;
        // A send to itself has its receive in the same rank.
        if (is_p2p(call.func) && call.root == instance.record.rank)
            operation.flags |= OPERATION_SENT | OPERATION_RECEIVED;
    }

    // Sends of one rank to another, and the receives there.
    void number_p2p(Index comm) {
        std::map<std::pair<std::int32_t, std::int32_t>, std::vector<PairCalls>>
            pairs; // source, destination
        for (const Index index : nccl_.communicators[comm].instances) {
            const Instance &instance = nccl_.instances[index];
            std::map<std::tuple<std::uint8_t, std::int32_t, bool>, PairCalls> by_peer;
            for (const std::uint32_t i :
                 calls_of(index, [](const Call &call) { return is_p2p(call.func); })) {
                const Call &call = stream_of(index).calls[i];
                const bool may_miss = call.time_ns >= instance.calls_whole_until_ns;
                PairCalls &calls = by_peer[{call.func, call.root, may_miss}];
                calls.instance = index;
                calls.is_send = call.func == CW_NCCL_SEND;
                calls.may_miss = may_miss;
                // NCCL's counts are of started operations; sends within a node are never started.
                calls.base = instance.created ? SeqBase::Creation : SeqBase::Recording;
                calls.calls.push_back(i);
            }
            for (auto &[key, calls] : by_peer) {
                const std::int32_t rank = instance.record.rank;
                const std::int32_t peer = std::get<1>(key);
                pairs[calls.is_send ? std::pair(rank, peer) : std::pair(peer, rank)].push_back(
                    std::move(calls));
            }
        }
        for (auto &[key, all] : pairs) {
            Range pair;
            pair.comm = comm;
            pair.is_pair = true;
            pair.source = key.first;
            pair.destination = key.second;
            number_pair(pair, all);
        }
    }

    void number_pair(const Range &pair, std::vector<PairCalls> &all) {
        std::vector<EndCalls> ends;
        for (const PairCalls &calls : all)
            if (!calls.may_miss)
                ends.push_back({calls.calls.size(), {}, calls.is_send, calls.base, std::nullopt});
        if (needs_items(ends))
            for (std::size_t i = 0, end = 0; i < all.size(); ++i)
                if (!all[i].may_miss)
                    ends[end++].items = sequence_of(all[i]);
        number_pairs(ends);
        std::vector<Calls> joined;
        std::vector<std::vector<Calls>> alone;
        next_number_.clear();
        auto end = ends.begin();
        for (PairCalls &calls : all) {
            const EndCalls *of = calls.may_miss ? nullptr : &*end++;
            if (of == nullptr || !of->number) {
                add_alone(alone, std::move(calls));
                continue;
            }
            calls.first_number = *of->number;
            calls.base = of->base;
            joined.push_back(std::move(calls));
        }
        add_ranges(pair, std::move(joined));
        for (std::vector<Calls> &calls : alone)
            add_ranges(pair, std::move(calls));
    }

    std::vector<SequenceItem> sequence_of(const Calls &calls) const {
        std::vector<SequenceItem> items;
        for (const std::uint32_t i : calls.calls) {
            const Call &call = stream_of(calls.instance).calls[i];
            items.push_back({model::multiply_saturating(
                                 call.count, capture::nccl_datatype_bytes(call.datatype)),
                             clock_.time_ns(nccl_.instances[calls.instance].host, call.time_ns)});
        }
        return items;
    }

    void complete(Operation &operation) const {
        if (!operation.has(OPERATION_CAPTURED))
            operation.replay = NONE;
        const bool is_pair = operation.source >= 0 || operation.destination >= 0;
        const auto n_ranks =
            static_cast<std::uint32_t>(std::max(nccl_.communicators[operation.comm].n_ranks, 0));
        const bool is_whole =
            is_pair ? operation.has(OPERATION_SENT) && operation.has(OPERATION_RECEIVED)
                    : operation.ranks >= n_ranks;
        if (!is_whole)
            operation.flags |= OPERATION_PARTIAL;
    }

    Model &model_;
    NcclFacts &nccl_;
    CommonClock clock_;
    OpenGroups open_groups_;
    CutLaunches cut_launches_;
    std::vector<Range> ranges_;
    std::map<std::int32_t, std::uint64_t> next_number_; // by rank: of calls that are listed by it
};

} // namespace

void make_operations(Model &model, std::uint64_t most_replays) {
    Maker(model).run(most_replays);
}

} // namespace collwire::nccl
