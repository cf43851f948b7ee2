// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <tuple>

#include "correlate/capture/nccl_names.h"
#include "correlate/nccl/common_clock.h"
#include "correlate/nccl/number_pairs.h"
#include "correlate/nccl/resolve.h"

namespace collwire::identity {

using model::Model;

namespace {

// The calls of one instance that are numbered together, in their order.
struct Calls {
    Index instance = NONE;
    std::vector<std::uint32_t> calls;
    std::uint64_t first_number = 0;
    SeqBase base = SeqBase::Recording;
};

// Sends of a rank to another, or the receives there, before or after the first that may be missing.
struct PairCalls : Calls {
    bool is_send = false;
    bool may_miss = false;
};

// Numbers from `begin` on, without a gap, and whose they are.
struct Range {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::vector<const Calls *> calls;
};

class Maker {
public:
    Maker(Model &model, std::uint64_t most_replays)
        : model_(model), nccl_(model.nccl), clock_(model), replays_left_(most_replays) {}

    void run() {
        has_links_.resize(nccl_.instances.size());
        for (const Link &link : nccl_.links)
            for (const Index instance : link.instances)
                has_links_[instance] = true;
        for (Index comm = 0; comm < nccl_.communicators.size(); ++comm) {
            make_collectives(comm);
            make_p2p(comm);
        }
        for (std::vector<Operation> *operations : {&nccl_.collectives, &nccl_.p2p})
            for (Operation &operation : *operations)
                complete(operation);
    }

private:
    [[nodiscard]] const CommStream &stream_of(Index instance) const {
        return nccl_.gathered.streams[nccl_.instances[instance].stream];
    }
    [[nodiscard]] std::vector<CallJoin> &joins_of(Index instance) {
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

    void make_collectives(Index comm) {
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
        add_operations(comm, nccl_.collectives, joined, nullptr);
        for (const std::vector<Calls> &calls : alone)
            add_operations(comm, nccl_.collectives, calls, nullptr);
    }

    static Calls part_of(const Calls &calls, std::size_t begin, std::size_t end) {
        return {calls.instance,
                {calls.calls.begin() + static_cast<std::ptrdiff_t>(begin),
                 calls.calls.begin() + static_cast<std::ptrdiff_t>(end)},
                calls.first_number,
                calls.base};
    }

    // They are told by their rank, so no two of one may have a number.
    void add_alone(std::vector<std::vector<Calls>> &alone, Calls calls) {
        if (calls.calls.empty())
            return;
        std::uint64_t &next = next_number_[nccl_.instances[calls.instance].record.rank];
        calls.base = SeqBase::Recording;
        calls.first_number = next;
        next += calls.calls.size();
        alone.push_back({std::move(calls)});
    }

    // The operations of calls that are numbered alike, by number.
    void add_operations(Index comm, std::vector<Operation> &into, const std::vector<Calls> &all,
                        const Operation *pair) {
        for (const Range &range : ranges_of(all)) {
            // A captured call is one operation for each launch of its graph.
            std::vector<std::uint32_t> repeats(range.end - range.begin, 1);
            for (const Calls *calls : range.calls)
                for (std::size_t i = 0; i < calls->calls.size(); ++i)
                    if (const CallJoin &join = joins_of(calls->instance)[calls->calls[i]];
                        is_captured(calls->instance, join)) {
                        std::uint32_t &most = repeats[calls->first_number + i - range.begin];
                        most = std::max(most, join.launches);
                    }
            for (std::uint32_t &repeat : repeats)
                leave_out_replays(repeat);
            std::vector<Index> first; // operation, by number
            for (std::uint64_t i = 0; i < repeats.size(); ++i) {
                first.push_back(static_cast<Index>(into.size()));
                Operation operation = pair != nullptr ? *pair : Operation{};
                operation.comm = comm;
                operation.seq = range.begin + i;
                for (std::uint32_t replay = 0; replay < repeats[i]; ++replay) {
                    operation.replay = replay;
                    into.push_back(operation);
                }
            }
            for (const Calls *calls : range.calls)
                take_calls(into, *calls, range.begin, first, repeats);
        }
    }

    void leave_out_replays(std::uint32_t &repeats) {
        const std::uint64_t wanted = repeats - std::min(repeats, 1U);
        const std::uint64_t kept = std::min(wanted, replays_left_);
        nccl_.replays_left_out += wanted - kept;
        replays_left_ -= kept;
        repeats -= static_cast<std::uint32_t>(wanted - kept);
    }

    static std::vector<Range> ranges_of(const std::vector<Calls> &all) {
        std::vector<const Calls *> ordered;
        for (const Calls &calls : all)
            ordered.push_back(&calls);
        std::stable_sort(ordered.begin(), ordered.end(), [](const Calls *a, const Calls *b) {
            return a->first_number < b->first_number;
        });
        std::vector<Range> ranges;
        for (const Calls *calls : ordered) {
            const std::uint64_t end = calls->first_number + calls->calls.size();
            if (ranges.empty() || calls->first_number > ranges.back().end)
                ranges.push_back({calls->first_number, end, {}});
            ranges.back().end = std::max(ranges.back().end, end);
            ranges.back().calls.push_back(calls);
        }
        return ranges;
    }

    void take_calls(std::vector<Operation> &into, const Calls &calls, std::uint64_t begin,
                    const std::vector<Index> &first, const std::vector<std::uint32_t> &repeats) {
        const Instance &instance = nccl_.instances[calls.instance];
        for (std::size_t i = 0; i < calls.calls.size(); ++i) {
            const Call &call = stream_of(calls.instance).calls[calls.calls[i]];
            CallJoin &join = joins_of(calls.instance)[calls.calls[i]];
            const std::uint64_t number = calls.first_number + i - begin;
            join.operation = first[number];
            join.launches = std::min(join.launches, repeats[number]);
            const bool captured = is_captured(calls.instance, join);
            const std::uint64_t called_ns = model_.hosts[instance.host].realtime_ns(call.time_ns);
            const bool is_waited_for = join.launch == NONE && may_launch(instance, call);
            const bool may_be_lost =
                is_waited_for && call.time_ns >= instance.launches_whole_until_ns;
            const bool may_come = is_waited_for && may_come_later(calls.instance, call);
            for (std::uint32_t replay = 0; replay < repeats[number]; ++replay) {
                Operation &operation = into[join.operation + replay];
                take_call(operation, instance, call, called_ns, captured, calls.base);
                if (may_be_lost || may_come || (captured && replay >= join.launches))
                    operation.flags |= OPERATION_PARTIAL;
                if (may_be_lost)
                    operation.rung = std::min(operation.rung, Rung::Inferred);
                if (may_lack_records(instance, call, captured))
                    operation.flags |= OPERATION_LACKS_RECORDS;
            }
        }
    }

    [[nodiscard]] bool may_launch(const Instance &instance, const Call &call) const {
        return !never_launches(call, instance) && nccl_.communicators[instance.comm].n_nodes != 1;
    }

    // The graph of a captured call may be launched at any time after it.
    static bool may_lack_records(const Instance &instance, const Call &call, bool captured) {
        return instance.operations_rung == Rung::Process ||
               (captured ? instance.whole_until_ns != UINT64_MAX
                         : call.time_ns >= instance.whole_until_ns);
    }

    // Its group may have been open when the recording ended. A rank without anything on the network
    // never launches.
    [[nodiscard]] bool may_come_later(Index index, const Call &call) const {
        const Instance &instance = nccl_.instances[index];
        if (instance.ended || (instance.n_launches == 0 && !has_links_[index]))
            return false;
        return instance.n_launches == 0 ||
               call.time_ns > stream_of(index)
                                  .launches[instance.first_launch + instance.n_launches - 1]
                                  .time_ns;
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
    void make_p2p(Index comm) {
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
                calls.base = instance.created      ? SeqBase::Creation
                             : instance.from_start ? SeqBase::Launched
                                                   : SeqBase::Recording;
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
            Operation pair;
            pair.source = key.first;
            pair.destination = key.second;
            add_pair(comm, pair, all);
        }
    }

    void add_pair(Index comm, const Operation &pair, std::vector<PairCalls> &all) {
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
        add_operations(comm, nccl_.p2p, joined, &pair);
        for (const std::vector<Calls> &calls : alone)
            add_operations(comm, nccl_.p2p, calls, &pair);
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
    Identity &nccl_;
    CommonClock clock_;
    std::uint64_t replays_left_;                        // to be made
    std::vector<bool> has_links_;                       // by instance
    std::map<std::int32_t, std::uint64_t> next_number_; // by rank: of calls that are told by it
};

} // namespace

void make_operations(Model &model, std::uint64_t most_replays) {
    Maker(model, most_replays).run();
}

} // namespace collwire::identity
