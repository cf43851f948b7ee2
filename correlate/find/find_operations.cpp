// SPDX-License-Identifier: Apache-2.0
#include "correlate/find/find_operations.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "collwire/nccl_launch_records.h"
#include "correlate/find/op_types.h"
#include "correlate/nccl/common_clock.h"
#include "correlate/nccl/describe.h"
#include "correlate/nccl/parts.h"
#include "correlate/roles/guess_roles.h"

namespace collwire::find {
namespace {

using model::Index;
using model::Model;
using model::NONE;
using nccl::Instance;
using nccl::Operation;

// Of the operations that fit by their arguments, so many are compared in full.
constexpr std::size_t MOST_COMPARED = 4096;
constexpr std::size_t MOST_COUNTS = 4;       // that are named
constexpr std::int32_t MOST_RANKS = 1 << 20; // a capture may claim any number

using ProcessKey = std::pair<Index, std::uint32_t>; // session, pid

class OperationFinder {
public:
    OperationFinder(const Model &model, const WatchdogLine &line)
        : model_(model), nccl_(model.nccl), line_(line), clock_(model), parts_(model) {
        find_global_rank();
    }

    FindResult run() {
        for (Index comm = 0; comm < nccl_.communicators.size(); ++comm)
            if (has_rank(comm))
                consider(comm);
        std::ranges::stable_sort(candidates_, {}, [](const Candidate &candidate) {
            return std::tuple(candidate.position, candidate.distance);
        });
        FindResult result;
        const std::size_t n = std::min(candidates_.size(), MOST_COMPARED);
        result.more = candidates_.size() - n;
        for (std::size_t i = 0; i < n; ++i) {
            FoundOperation found = describe(candidates_[i]);
            if (!can_be(found))
                continue;
            if (result.operations.size() < MOST_FOUND)
                result.operations.push_back(std::move(found));
            else
                ++result.more;
        }
        if (result.operations.empty())
            result.none = why_none();
        else
            add_roles(result);
        return result;
    }

private:
    struct Candidate {
        Index comm = NONE;
        bool is_pair = false;
        Index operation = NONE;
        Position position = Position::NotCompared;
        std::uint64_t distance = 0;
    };

    // The processes that have the line's global rank, if a communicator has all ranks of the job.
    void find_global_rank() {
        if (!line_.global_rank)
            return;
        std::int32_t most = 0;
        for (const nccl::Communicator &comm : nccl_.communicators)
            most = std::max(most, comm.n_ranks);
        std::set<ProcessKey> processes;
        for (const Instance &instance : nccl_.instances)
            processes.emplace(instance.session, instance.record.tgid);
        if (processes.size() > static_cast<std::size_t>(most))
            return;
        for (const Instance &instance : nccl_.instances)
            if (instance.record.n_ranks == most && instance.record.rank == *line_.global_rank)
                of_global_rank_.emplace(instance.session, instance.record.tgid);
    }

    // Whether the rank that logged the line can be one of the communicator.
    [[nodiscard]] bool has_rank(Index index) const {
        const nccl::Communicator &comm = nccl_.communicators[index];
        if (line_.rank && *line_.rank >= comm.n_ranks)
            return false;
        if (of_global_rank_.empty())
            return true;
        return std::ranges::any_of(comm.instances, [&](Index at) {
            const Instance &instance = nccl_.instances[at];
            return of_global_rank_.contains({instance.session, instance.record.tgid}) &&
                   (!line_.rank || instance.record.rank == *line_.rank);
        });
    }

    // The rank in the communicator; absent: not known.
    [[nodiscard]] std::optional<std::int32_t> rank_in(Index index) const {
        if (line_.rank)
            return line_.rank;
        for (const Index at : nccl_.communicators[index].instances)
            if (const Instance &instance = nccl_.instances[at];
                of_global_rank_.contains({instance.session, instance.record.tgid}))
                return instance.record.rank;
        return std::nullopt;
    }

    [[nodiscard]] bool fits(const OpTypeCalls &calls, const Operation &operation,
                            std::uint8_t func) {
        if (!calls.is_known)
            return true;
        bool is_func = false;
        for (const NcclCall &call : calls.calls) {
            if (call.func != func)
                continue;
            is_func = true;
            if (!call.count || *call.count == operation.count)
                return true;
        }
        n_of_function_ += is_func ? 1 : 0;
        if (is_func && other_counts_.size() < MOST_COUNTS)
            other_counts_.insert(operation.count);
        return false;
    }

    void consider(Index comm) {
        const OpTypeCalls calls = calls_of(line_, nccl_.communicators[comm].n_ranks);
        const bool has_pairs = consider_pairs(comm, calls);
        auto found = std::ranges::lower_bound(nccl_.collectives, comm, {}, &Operation::comm);
        for (; found != nccl_.collectives.end() && found->comm == comm; ++found) {
            if (!fits(calls, *found, found->func))
                continue;
            Candidate candidate{comm, false, static_cast<Index>(found - nccl_.collectives.begin())};
            if (place(*found, has_pairs, candidate))
                add(candidate, *found);
        }
    }

    // Whether the communicator has sends and receives at all.
    bool consider_pairs(Index comm, const OpTypeCalls &calls) {
        const auto rank = rank_in(comm);
        auto found = std::ranges::lower_bound(nccl_.p2p, comm, {}, &Operation::comm);
        const bool has_pairs = found != nccl_.p2p.end() && found->comm == comm;
        for (; found != nccl_.p2p.end() && found->comm == comm; ++found) {
            const bool is_sender = !rank || found->source == *rank;
            const bool is_receiver = !rank || found->destination == *rank;
            if (!(is_sender && fits(calls, *found, CW_NCCL_SEND)) &&
                !(is_receiver && fits(calls, *found, CW_NCCL_RECV)))
                continue;
            add({comm, true, static_cast<Index>(found - nccl_.p2p.begin())}, *found);
        }
        return has_pairs;
    }

    // False: its place in the communicator's order rules it out.
    [[nodiscard]] bool place(const Operation &operation, bool has_pairs, Candidate &candidate) {
        if (!line_.seq || *line_.seq == 0 || line_.is_p2p_seq || operation.replay != NONE ||
            operation.seq_base < nccl::SeqBase::Launched)
            return true;
        const std::uint64_t before = *line_.seq - 1; // PyTorch counts from 1
        candidate.position = operation.seq == before  ? Position::Equal
                             : operation.seq > before ? Position::Later
                                                      : Position::Earlier;
        candidate.distance =
            operation.seq > before ? operation.seq - before : before - operation.seq;
        // Some versions count a coalesced group once more, or count an empty one.
        if (candidate.position != Position::Earlier || has_pairs || line_.is_unfinished)
            return true;
        ++n_earlier_;
        return false;
    }

    void add(const Candidate &candidate, const Operation &operation) {
        if (line_.is_unfinished && !operation.has(nccl::OPERATION_PARTIAL) &&
            operation.end_known != nccl::EndKnown::No) {
            ++n_ended_;
            return;
        }
        candidates_.push_back(candidate);
    }

    [[nodiscard]] const Operation &operation_of(bool is_pair, Index index) const {
        return is_pair ? nccl_.p2p[index] : nccl_.collectives[index];
    }

    // The rank that logged the line has called it and, if it waits, has not ended it.
    bool can_be(const FoundOperation &found) {
        const auto rank = rank_in(found.communicator);
        if (!rank)
            return true;
        for (const RankState &state : found.ranks) {
            if (state.rank != *rank)
                continue;
            n_not_called_ += state.has_called ? 0 : 1;
            n_ended_ += line_.is_unfinished && state.ended == Ended::Yes ? 1 : 0;
            return state.has_called && !(line_.is_unfinished && state.ended == Ended::Yes);
        }
        return true;
    }

    void add_roles(FindResult &result) const {
        const std::vector<roles::RoleGuess> guesses = roles::guess_roles(model_);
        for (FoundOperation &found : result.operations)
            found.guessed_role = roles::guessed_role_name(guesses[found.communicator].role);
    }

    FoundOperation describe(const Candidate &candidate) {
        FoundOperation found;
        found.communicator = candidate.comm;
        found.is_pair = candidate.is_pair;
        found.operation = candidate.operation;
        found.position = candidate.position;
        const Operation &operation = operation_of(candidate.is_pair, candidate.operation);
        const nccl::Communicator &comm = nccl_.communicators[candidate.comm];
        std::map<std::int32_t, RankState> ranks;
        std::map<std::int32_t, Called> calls;
        for (const Index index : comm.instances) {
            const Instance &instance = nccl_.instances[index];
            if (candidate.is_pair && instance.record.rank != operation.source &&
                instance.record.rank != operation.destination)
                continue;
            RankState &state = ranks[instance.record.rank];
            state.rank = instance.record.rank;
            state.host = model_.hosts[instance.host].name;
            state.pid = instance.record.tgid;
        }
        for (const nccl::OperationCall &call : parts_.calls_of(operation)) {
            const Instance &instance = nccl_.instances[call.instance];
            RankState &state = ranks[instance.record.rank];
            state.has_called = true;
            state.called_ns = clock_.time_ns(instance.host, call.call.time_ns);
            calls[state.rank] = {instance.host, call.call.time_ns, state.called_ns};
            if (call.launch != model::NONE) {
                state.has_launched = true;
                state.launched_ns = clock_.time_ns(
                    instance.host,
                    nccl_.gathered.streams[instance.stream].launches[call.launch].time_ns);
            }
        }
        // Over the network alone.
        std::map<std::int32_t, bool> are_all_ended;
        for (const nccl::Part &part : parts_.of(operation)) {
            const auto [all, is_new] =
                are_all_ended.try_emplace(nccl_.instances[part.instance].record.rank, true);
            all->second = all->second && part.time.known != nccl::EndKnown::No;
        }
        put_after_first(calls, ranks);
        for (auto &[rank, state] : ranks) {
            const auto all = are_all_ended.find(rank);
            if (!state.has_launched)
                state.ended = Ended::No;
            else if (all != are_all_ended.end())
                state.ended = all->second ? Ended::Yes : Ended::No;
            found.ranks.push_back(state);
        }
        for (std::int32_t rank = 0; !candidate.is_pair && rank < std::min(comm.n_ranks, MOST_RANKS);
             ++rank)
            if (!ranks.contains(rank))
                found.without_capture.push_back(rank);
        found.reasons = reasons_of(found, operation);
        return found;
    }

    struct Called {
        model::Index host = model::NONE;
        std::uint64_t monotonic_ns = 0;
        std::uint64_t common_ns = 0; // 0: the host's clock was never read
    };

    void put_after_first(const std::map<std::int32_t, Called> &calls,
                         std::map<std::int32_t, RankState> &ranks) const {
        const Called *first = nullptr;
        for (const auto &[rank, call] : calls)
            if (call.common_ns != 0 && (first == nullptr || call.common_ns < first->common_ns))
                first = &call;
        for (const auto &[rank, call] : calls) {
            if (first == nullptr || call.common_ns == 0)
                continue;
            const std::uint64_t after_ns = call.common_ns - first->common_ns;
            RankState &state = ranks[rank];
            if (call.host == first->host ||
                clock_.order(first->host, first->monotonic_ns, call.host, call.monotonic_ns) ==
                    clocks::Order::Earlier) {
                state.after_first_ns = after_ns;
                continue;
            }
            const auto error_ns = clock_.time(call.host, call.monotonic_ns).error_ns();
            const auto first_error_ns = clock_.time(first->host, first->monotonic_ns).error_ns();
            if (error_ns && first_error_ns)
                state.after_first_at_most_ns = after_ns + *error_ns + *first_error_ns;
        }
    }

    [[nodiscard]] std::vector<std::string> reasons_of(const FoundOperation &found,
                                                      const Operation &operation) const {
        std::vector<std::string> reasons;
        if (!line_.op_type.empty() && calls_of(line_, 1).is_known)
            reasons.push_back(
                line_.numel_in || line_.numel_out
                    ? fmt::format("{} of {} elements", line_.op_type, operation.count)
                    : fmt::format("{}; the line has no number of elements", line_.op_type));
        if (const auto rank = rank_in(found.communicator)) {
            const auto state = std::ranges::find(found.ranks, *rank, &RankState::rank);
            reasons.push_back(state == found.ranks.end()
                                  ? fmt::format("rank {} is in no capture", *rank)
                                  : fmt::format("rank {} has called it", *rank));
        }
        const std::uint64_t seq = line_.seq.value_or(0);
        switch (found.position) {
        case Position::Equal:
            reasons.push_back(fmt::format("its place is the same: PyTorch's number {} counts from "
                                          "1, {} from 0",
                                          seq, operation.seq));
            break;
        case Position::Later:
            reasons.push_back(fmt::format("{} places after PyTorch's number {}: fits if PyTorch "
                                          "counted several earlier ones as one (coalesced)",
                                          operation.seq + 1 - seq, seq));
            break;
        case Position::Earlier:
            reasons.push_back(
                fmt::format("{} places before PyTorch's number {}: fits if PyTorch counted more "
                            "(sends and receives of an all-to-all, coalesced groups twice)",
                            seq - 1 - operation.seq, seq));
            break;
        case Position::NotCompared:
            reasons.emplace_back(found.is_pair
                                     ? "places of sends and receives are not compared: PyTorch "
                                       "counts those of a group, NCCL those of a pair"
                                     : "its place is not compared: the line has no number, or "
                                       "the captures do not have the communicator's first calls");
        }
        return reasons;
    }

    [[nodiscard]] std::string why_none() const {
        if (nccl_.communicators.empty())
            return "the captures have no NCCL communicator";
        if (n_not_called_ != 0)
            return fmt::format("{} operation(s) fit by function and size, and that rank has called "
                               "none of them",
                               n_not_called_);
        if (n_ended_ != 0)
            return fmt::format("{} operation(s) fit by function and size, and all of them ended",
                               n_ended_);
        if (n_earlier_ != 0)
            return fmt::format("{} operation(s) fit by function and size, and all of them come "
                               "before PyTorch's number {}",
                               n_earlier_, line_.seq.value_or(0));
        if (n_of_function_ != 0)
            return fmt::format("{} operation(s) of that function have another number of elements "
                               "({}{})",
                               n_of_function_, fmt::join(other_counts_, ", "),
                               other_counts_.size() == MOST_COUNTS ? " ..." : "");
        return model_.window ? "no communicator has such a rank that called such a function in the "
                               "window; leave --from and --last out to search all"
                             : "no communicator has such a rank and such a function";
    }

    const Model &model_;
    const nccl::NcclFacts &nccl_;
    const WatchdogLine &line_;
    nccl::CommonClock clock_;
    nccl::Parts parts_;
    std::set<ProcessKey> of_global_rank_;
    std::vector<Candidate> candidates_;
    std::set<std::uint64_t> other_counts_;
    std::size_t n_of_function_ = 0, n_earlier_ = 0, n_ended_ = 0, n_not_called_ = 0;
};

} // namespace

FindResult find_operations(const Model &model, const WatchdogLine &line) {
    return OperationFinder(model, line).run();
}

} // namespace collwire::find
