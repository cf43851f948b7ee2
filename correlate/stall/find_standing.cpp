// SPDX-License-Identifier: Apache-2.0
#include "correlate/stall/find_standing.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "correlate/nccl/common_clock.h"
#include "correlate/nccl/describe.h"
#include "correlate/nccl/resolve.h"
#include "correlate/nccl/under_way.h"
#include "correlate/stall/call_text.h"
#include "correlate/stall/find_network.h"
#include "correlate/stall/first_errors.h"

namespace collwire::stall {
namespace {

using model::Index;
using model::Model;
using model::NONE;
using nccl::Instance;
using nccl::NcclFacts;

// A capture may claim any number.
constexpr std::int32_t MOST_RANKS = 1 << 20;
// Calls or launches from the end that are searched for one with an operation.
constexpr std::uint32_t MOST_LOOKED_AT = 4096;

std::string operation_text(const nccl::Operation &operation) {
    std::string text =
        fmt::format("{} (seq {})", call_text(operation.func, operation.count, operation.datatype),
                    operation.seq);
    return operation.replay == NONE
               ? text
               : text + fmt::format(", launch {} of its graph", operation.replay + 1);
}

class Finder {
public:
    Finder(const Model &model, const std::vector<roles::RoleGuess> &guesses)
        : model_(model), guesses_(guesses), nccl_(model.nccl), clock_(model) {}

    Standings run() {
        for (const nccl::EndedProcess &ended : nccl_.gathered.ended_processes)
            ended_.emplace(std::pair(ended.session, ended.tgid), ended);
        for (Index index = 0; index < nccl_.communicators.size(); ++index)
            choose(index);
        nccl::find_under_way(model_, asked_);
        Standings job;
        std::size_t next_asked = 0;
        for (const Chosen &chosen : chosen_)
            job.communicators.push_back(standing_of(chosen, next_asked));
        job.network = find_network(model_);
        return job;
    }

private:
    struct Chosen {
        Index comm = NONE;
        std::vector<Index> instances; // the last one of each rank
        std::vector<std::int32_t> missing;
    };

    // By the host's own clock.
    [[nodiscard]] std::uint64_t until_ns(const Instance &instance) const {
        const std::uint64_t end_ns = model_.sessions[instance.session].end_ns;
        const auto ended = ended_.find({instance.session, instance.record.tgid});
        return ended == ended_.end() ? end_ns : std::min(end_ns, ended->second.there_ns);
    }

    [[nodiscard]] std::uint64_t realtime_ns(const Instance &instance, std::uint64_t ns) const {
        return ns == 0 ? 0 : clock_.time_ns(instance.host, ns);
    }

    void choose(Index index) {
        const nccl::Communicator &comm = nccl_.communicators[index];
        if (comm.n_ranks < 2)
            return;
        Chosen chosen{index, {}, {}};
        std::set<std::int32_t> seen;
        // By rank, then by time.
        for (std::size_t i = 0; i < comm.instances.size(); ++i) {
            const Instance &instance = nccl_.instances[comm.instances[i]];
            seen.insert(instance.record.rank);
            const bool is_last =
                i + 1 == comm.instances.size() ||
                nccl_.instances[comm.instances[i + 1]].record.rank != instance.record.rank;
            if (is_last && !instance.ended && !model_.sessions[instance.session].excluded)
                chosen.instances.push_back(comm.instances[i]);
        }
        if (chosen.instances.empty())
            return;
        for (std::int32_t rank = 0; rank < std::min(comm.n_ranks, MOST_RANKS); ++rank)
            if (!seen.contains(rank))
                chosen.missing.push_back(rank);
        for (const Index one : chosen.instances) {
            nccl::UnderWay asked;
            asked.instance = one;
            asked.time_ns = until_ns(nccl_.instances[one]);
            asked_.push_back(asked);
        }
        chosen_.push_back(std::move(chosen));
    }

    struct Last {
        Index called = NONE, launched = NONE; // operations
        bool uses_network = false;            // the last launch
        std::uint64_t called_ns = 0;          // by the host's clock
        std::uint64_t longest_pause_ns = 0;
    };

    [[nodiscard]] bool is_later(Index a, Index b) const {
        const nccl::Operation &one = nccl_.collectives[a], &other = nccl_.collectives[b];
        return one.replay == NONE && other.replay == NONE ? one.seq > other.seq
                                                          : time_of(one) > time_of(other);
    }

    static std::uint64_t time_of(const nccl::Operation &operation) {
        return operation.begin_realtime_ns != 0 ? operation.begin_realtime_ns
                                                : operation.called_realtime_ns;
    }

    [[nodiscard]] bool uses_network(const nccl::Launch &launch) const {
        return launch.shape_index != NONE &&
               std::ranges::any_of(nccl_.shapes[launch.shape_index].ops,
                                   [](const nccl::ShapeOp &op) { return !op.is_local; });
    }

    [[nodiscard]] Last last_of(const Instance &instance) const {
        const nccl::CommStream &stream = nccl_.gathered.streams[instance.stream];
        Last last;
        const nccl::CallJoins &joins = nccl_.call_joins[instance.stream];
        for (std::uint32_t i = instance.n_calls; i-- > 0;) {
            const nccl::Call &call = stream.calls[instance.first_call + i];
            const nccl::CallJoin join = joins[instance.first_call + i];
            if (!nccl::is_collective(call.func) || nccl::is_failed(call) || join.operation == NONE)
                continue;
            last.called = join.operation;
            last.called_ns = call.time_ns;
            break;
        }
        for (std::uint32_t i = 0; i + 1 < instance.n_calls; ++i)
            last.longest_pause_ns =
                std::max(last.longest_pause_ns, stream.calls[instance.first_call + i + 1].time_ns -
                                                    stream.calls[instance.first_call + i].time_ns);
        const std::uint32_t looked_at = std::min(instance.n_launches, MOST_LOOKED_AT);
        for (std::uint32_t i = 0; i < looked_at && last.launched == NONE; ++i) {
            const nccl::Launch &launch =
                stream.launches[instance.first_launch + instance.n_launches - 1 - i];
            for (std::uint32_t task = launch.n_tasks; task-- > 0 && last.launched == NONE;) {
                const auto [is_pair, operation] = nccl::operation_of(nccl_, instance, launch, task);
                if (is_pair || operation == NONE)
                    continue;
                last.launched = operation;
                last.uses_network = uses_network(launch);
                // A launch of a graph has no call.
                if ((launch.flags & CW_NCCL_LAUNCH_GRAPH) != 0 &&
                    (last.called == NONE || is_later(operation, last.called))) {
                    last.called = operation;
                    last.called_ns = launch.time_ns;
                }
            }
        }
        return last;
    }

    [[nodiscard]] bool is_of(Index operation, Index comm) const {
        return operation < nccl_.collectives.size() && nccl_.collectives[operation].comm == comm;
    }

    Communicator standing_of(const Chosen &chosen, std::size_t &next_asked) {
        const nccl::Communicator &from = nccl_.communicators[chosen.comm];
        Communicator comm;
        comm.hash = from.hash;
        comm.name = from.name;
        comm.guessed_role = roles::guessed_role_name(guesses_[chosen.comm].role);
        comm.n_ranks = from.n_ranks;
        comm.missing = chosen.missing;
        comm.has_all_launches = from.n_nodes == from.n_ranks;
        std::vector<Last> lasts;
        std::vector<nccl::UnderWay> in_flight;
        std::set<Index> referenced;
        const auto refer = [&](Index operation) {
            if (is_of(operation, chosen.comm))
                referenced.insert(operation);
        };
        for (const Index index : chosen.instances) {
            lasts.push_back(last_of(nccl_.instances[index]));
            in_flight.push_back(asked_[next_asked++]);
            refer(lasts.back().called);
            refer(lasts.back().launched);
            if (!in_flight.back().is_pair && in_flight.back().is_certain)
                refer(in_flight.back().operation);
            // What a rank that lags has not called.
            if (lasts.back().called == NONE)
                refer(first_of(chosen.comm));
            else if (nccl_.collectives[lasts.back().called].replay == NONE)
                refer(lasts.back().called + 1);
        }
        std::vector<Index> order(referenced.begin(), referenced.end());
        std::ranges::stable_sort(order, [this](Index a, Index b) { return is_later(b, a); });
        std::map<Index, std::size_t> position;
        for (const Index index : order) {
            position.emplace(index, comm.operations.size());
            comm.operations.push_back(operation_of(chosen, index));
        }
        comm.is_comparable = std::ranges::all_of(
            order, [this](Index index) { return nccl_.collectives[index].rank == -1; });
        for (std::size_t i = 0; i < chosen.instances.size(); ++i)
            comm.ranks.push_back(
                rank_of(nccl_.instances[chosen.instances[i]], lasts[i], in_flight[i], position));
        add_open_pairs(chosen.comm, comm);
        add_error(chosen.comm, comm);
        return comm;
    }

    [[nodiscard]] Index first_of(Index comm) const {
        const auto found =
            std::ranges::lower_bound(nccl_.collectives, comm, {}, &nccl::Operation::comm);
        return static_cast<Index>(found - nccl_.collectives.begin());
    }

    Rank rank_of(const Instance &instance, const Last &last, const nccl::UnderWay &in_flight,
                 const std::map<Index, std::size_t> &position) const {
        const auto at = [&](Index operation) -> std::optional<std::size_t> {
            const auto found = position.find(operation);
            return found == position.end() ? std::nullopt : std::optional(found->second);
        };
        Rank rank;
        rank.rank = instance.record.rank;
        rank.host = model_.hosts[instance.host].name;
        rank.pid = instance.record.tgid;
        rank.until_ns = realtime_ns(instance, until_ns(instance));
        rank.whole_until_ns =
            realtime_ns(instance, std::min(until_ns(instance), instance.calls_whole_until_ns));
        if (const auto ended = ended_.find({instance.session, instance.record.tgid});
            ended != ended_.end())
            rank.exited_ns = realtime_ns(instance, ended->second.gone_ns);
        rank.called = at(last.called);
        rank.launched = at(last.launched);
        rank.called_ns = realtime_ns(instance, last.called_ns);
        rank.longest_pause_ns = last.longest_pause_ns;
        if (last.uses_network && (in_flight.of_instance == NONE || in_flight.is_certain))
            rank.is_done = in_flight.of_instance == NONE;
        if (in_flight.is_certain && !in_flight.is_pair && in_flight.seen_ns != 0) {
            rank.in_flight = at(in_flight.operation);
            // Connections without a change are read, too.
            const std::uint64_t read_ns = model_.sessions[instance.session].read_last_ns(
                in_flight.seen_ns, until_ns(instance));
            rank.in_flight_seen_ns = realtime_ns(instance, std::max(in_flight.seen_ns, read_ns));
        }
        return rank;
    }

    [[nodiscard]] Operation operation_of(const Chosen &chosen, Index index) const {
        const nccl::Operation &from = nccl_.collectives[index];
        Operation operation;
        operation.text = operation_text(from);
        operation.begin_ns = first_call_ns(chosen, index);
        if (operation.begin_ns == 0)
            operation.begin_ns = time_of(from);
        operation.differs = from.has(nccl::OPERATION_DIFFERS);
        if (operation.differs)
            operation.variants = variants_of(chosen, index);
        return operation;
    }

    // Of the last calls of its ranks; 0: none of them is it.
    [[nodiscard]] std::uint64_t first_call_ns(const Chosen &chosen, Index operation) const {
        std::uint64_t first_ns = 0;
        for (const Index index : chosen.instances) {
            const Instance &instance = nccl_.instances[index];
            const nccl::CallJoins &joins = nccl_.call_joins[instance.stream];
            const nccl::CallList &calls = nccl_.gathered.streams[instance.stream].calls;
            const std::uint32_t looked_at = std::min(instance.n_calls, MOST_LOOKED_AT);
            for (std::uint32_t i = 0; i < looked_at; ++i) {
                const std::uint32_t call = instance.first_call + instance.n_calls - 1 - i;
                if (joins.operation(call) != operation || !nccl::is_collective(calls[call].func))
                    continue;
                const std::uint64_t called_ns = realtime_ns(instance, calls[call].time_ns);
                first_ns = first_ns == 0 ? called_ns : std::min(first_ns, called_ns);
                break;
            }
        }
        return first_ns;
    }

    [[nodiscard]] std::vector<Operation::Variant> variants_of(const Chosen &chosen,
                                                              Index operation) const {
        std::map<std::string, std::vector<std::int32_t>> ranks;
        for (const Index index : chosen.instances) {
            const Instance &instance = nccl_.instances[index];
            const nccl::CallJoins &joins = nccl_.call_joins[instance.stream];
            const nccl::CallList &calls = nccl_.gathered.streams[instance.stream].calls;
            for (std::uint32_t i = instance.n_calls; i-- > 0;)
                if (const std::uint32_t call = instance.first_call + i;
                    joins.operation(call) == operation && nccl::is_collective(calls[call].func)) {
                    const nccl::Call &of = calls[call];
                    ranks[variant_text(of.func, of.count, of.datatype, of.root)].push_back(
                        instance.record.rank);
                    break;
                }
        }
        std::vector<Operation::Variant> variants;
        variants.reserve(ranks.size());
        for (auto &[text, of] : ranks)
            variants.push_back({text, std::move(of)});
        return variants;
    }

    // The first open one of each pair of ranks and direction.
    void add_open_pairs(Index index, Communicator &comm) const {
        std::set<std::pair<std::int32_t, std::int32_t>> seen;
        auto found = std::ranges::lower_bound(nccl_.p2p, index, {}, &nccl::Operation::comm);
        for (; found != nccl_.p2p.end() && found->comm == index; ++found) {
            const bool is_sent = found->has(nccl::OPERATION_SENT);
            if (is_sent == found->has(nccl::OPERATION_RECEIVED) || found->rank != -1 ||
                found->has(nccl::OPERATION_LACKS_RECORDS) ||
                !seen.insert({found->source, found->destination}).second)
                continue;
            OpenPair pair;
            pair.from = is_sent ? found->source : found->destination;
            pair.awaits = is_sent ? found->destination : found->source;
            pair.text = fmt::format(
                "{} {} rank {}",
                call_text(is_sent ? CW_NCCL_RECV : CW_NCCL_SEND, found->count, found->datatype),
                is_sent ? "from" : "to", pair.from);
            pair.since_ns = found->called_realtime_ns;
            comm.open_pairs.push_back(std::move(pair));
        }
    }

    void add_error(Index index, Communicator &comm) const {
        for (const nccl::NcclError &error : nccl_.errors) {
            if (error.order != nccl::ErrorOrder::First || error.kind == nccl::ErrorKind::Warning ||
                error.instance == NONE || nccl_.instances[error.instance].comm != index)
                continue;
            const Instance &instance = nccl_.instances[error.instance];
            comm.error = first_error_of(nccl_, error);
            comm.error->time_ns = realtime_ns(instance, error.time_ns);
            return;
        }
    }

    const Model &model_;
    const std::vector<roles::RoleGuess> &guesses_;
    const NcclFacts &nccl_;
    nccl::CommonClock clock_;
    std::map<std::pair<Index, std::uint32_t>, nccl::EndedProcess> ended_; // session, tgid
    std::vector<Chosen> chosen_;
    std::vector<nccl::UnderWay> asked_; // for each instance of each chosen communicator
};

} // namespace

bool lacks_calls(const Model &model) {
    bool has_any = false;
    for (const nccl::Communicator &comm : model.nccl.communicators) {
        std::map<std::int32_t, bool> ranks; // whether it has called
        for (const Index index : comm.instances) {
            const Instance &instance = model.nccl.instances[index];
            bool &has_called = ranks[instance.record.rank];
            has_called =
                has_called || instance.ended || instance.n_calls + instance.n_launches != 0;
            has_any = has_any || instance.n_calls + instance.n_launches != 0;
        }
        const auto called = std::ranges::count_if(ranks, [](const auto &r) { return r.second; });
        if (called != 0 && called != static_cast<std::ptrdiff_t>(ranks.size()))
            return true;
    }
    return !has_any;
}

Standings find_standing(const Model &model, const std::vector<roles::RoleGuess> &guesses) {
    return Finder(model, guesses).run();
}

} // namespace collwire::stall
