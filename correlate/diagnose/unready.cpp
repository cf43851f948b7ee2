// SPDX-License-Identifier: Apache-2.0
#include "correlate/diagnose/unready.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "correlate/diagnose/causes.h"
#include "correlate/diagnose/evidence.h"
#include "correlate/inspect/job_text.h"

namespace collwire::diagnose {
namespace {

constexpr std::int32_t MOST_RANKS = 1 << 20;
constexpr std::size_t MOST_NAMED = 16;
constexpr std::size_t MOST_CANDIDATES = 4;

// The bootstrap's number is equal on all ranks from the first moment on; NCCL before 2.23 sets the
// hash later.
using Key = std::tuple<std::uint64_t, std::uint64_t, std::int32_t, std::uint64_t>;
Key key_of(const inspect::UnreadyComm &comm) {
    const bool has_number = comm.magic != 0 || comm.hash != 0;
    return {comm.magic, comm.magic != 0 ? 0 : comm.hash, comm.n_ranks,
            has_number ? 0 : comm.parent_hash.value_or(0)};
}

using ProcessKey = std::pair<std::string, std::uint32_t>; // host, pid

bool is_failure(const std::string &result) {
    return !result.empty() && result != "ncclSuccess" && result != "ncclInProgress";
}

const Communicator *find_comm(const Diagnosis &diagnosis, std::uint64_t hash,
                              std::int32_t n_ranks) {
    for (const Communicator &comm : diagnosis.communicators)
        if (comm.hash == hash && (n_ranks == 0 || comm.n_ranks == n_ranks))
            return &comm;
    return nullptr;
}

// A communicator of the same size in which those that came have the same ranks: who has the number
// of an absent rank there probably has it here.
const Communicator *same_numbers(const Diagnosis &diagnosis, const UnreadyCommunicator &unready) {
    for (const Communicator &comm : diagnosis.communicators) {
        if (unready.n_ranks == 0 || comm.is_ambiguous || comm.n_ranks != unready.n_ranks ||
            comm.hash == unready.hash)
            continue;
        const bool fits = std::ranges::all_of(unready.ranks, [&comm](const UnreadyRank &rank) {
            const Rank *there = find_rank(comm, rank.rank);
            return there != nullptr && there->host == rank.host && there->pid == rank.pid;
        });
        if (fits)
            return &comm;
    }
    return nullptr;
}

void find_absent(UnreadyCommunicator &unready) {
    std::set<std::int32_t> come{unready.ready.begin(), unready.ready.end()};
    for (const UnreadyRank &rank : unready.ranks)
        come.insert(rank.rank);
    for (std::int32_t rank = 0; rank < std::min(unready.n_ranks, MOST_RANKS); ++rank)
        if (!come.contains(rank))
            unready.absent.push_back(rank);
    std::set<std::int32_t> awaited;
    for (const UnreadyRank &rank : unready.ranks)
        for (const inspect::Awaited &one : rank.comm->awaits)
            if (!come.contains(one.rank) && one.rank >= 0)
                awaited.insert(one.rank);
    unready.awaited.assign(awaited.begin(), awaited.end());
}

// An inspected process that probably is the absent rank.
Cause cause_of_candidate(const Rank &rank, const Communicator &comm, std::int32_t absent) {
    Cause cause;
    cause.kind = Kind::Application;
    cause.rank = absent;
    cause.sentence =
        fmt::format("rank {} has not come. It is probably pid {} on {}, which is rank {} of {}",
                    absent, rank.pid, rank.host, rank.rank, title_of(comm));
    cause.evidence = evidence_of(rank);
    for (const inspect::NcclCall &call : rank.process->calls)
        cause.evidence.push_back("its " + call_text(call));
    if (rank.standing.standing == inspect::Standing::Stopped || is_throttled(rank))
        cause.kind = Kind::Host;
    if (rank.standing.standing != inspect::Standing::Idle)
        cause.evidence.push_back(fmt::format("there it {}", inspect::sentence_of(rank.standing)));
    return cause;
}

// All ranks of the parent take part in a split; those that have come are `inside`.
void find_absent_of_parent(const Communicator &parent, const std::set<ProcessKey> &inside,
                           UnreadyCommunicator &unready) {
    for (const Rank &rank : parent.ranks)
        if (!inside.contains({rank.host, rank.pid}) && unready.causes.size() < MOST_NAMED) {
            Cause cause = cause_of_candidate(rank, parent, rank.rank);
            cause.sentence = fmt::format("{} has not come: all ranks of the parent {} take part",
                                         name_of(parent, rank.rank), title_of(parent));
            unready.causes.push_back(std::move(cause));
        }
    if (parent.missing.empty())
        return;
    Cause cause;
    cause.kind = Kind::Missing;
    cause.rank = parent.missing.front();
    cause.sentence =
        fmt::format("{} of the parent {} {} not inspected", numbers_text(parent.missing),
                    title_of(parent), parent.missing.size() == 1 ? "was" : "were");
    unready.causes.push_back(std::move(cause));
}

void find_causes(const Diagnosis &diagnosis, const std::vector<inspect::Inspection> &inspections,
                 UnreadyCommunicator &unready) {
    std::set<ProcessKey> inside;
    for (const UnreadyRank &rank : unready.ranks) {
        inside.insert({rank.host, rank.pid});
        if (is_failure(rank.comm->async_result)) {
            Cause cause;
            cause.kind = Kind::Error;
            cause.rank = rank.rank;
            cause.sentence =
                fmt::format("rank {} ({}): NCCL reports {}", rank.rank,
                            inspect::place_text(rank.host, *rank.process), rank.comm->async_result);
            unready.causes.push_back(std::move(cause));
        }
        for (const inspect::Awaited &one : rank.comm->awaits)
            if (one.rank < 0) {
                Cause cause;
                cause.kind = Kind::Network;
                cause.rank = rank.rank;
                cause.sentence = fmt::format(
                    "rank {} ({}) cannot connect to the bootstrap root{}: the process that "
                    "called ncclGetUniqueId has exited, or the network does not lead there",
                    rank.rank, inspect::place_text(rank.host, *rank.process),
                    one.address.empty() ? std::string{} : " at " + one.address);
                unready.causes.push_back(std::move(cause));
            }
    }
    if (unready.n_ranks == 0 && unready.parent_hash)
        if (const Communicator *parent = find_comm(diagnosis, *unready.parent_hash, 0))
            find_absent_of_parent(*parent, inside, unready);
    const Communicator *same = same_numbers(diagnosis, unready);
    std::vector<std::int32_t> unknown;
    for (const std::int32_t absent : unready.absent) {
        const Rank *candidate = same == nullptr ? nullptr : find_rank(*same, absent);
        if (candidate == nullptr)
            unknown.push_back(absent);
        else if (unready.causes.size() < MOST_NAMED)
            unready.causes.push_back(cause_of_candidate(*candidate, *same, absent));
    }
    if (!unknown.empty()) {
        Cause cause;
        cause.kind = Kind::Missing;
        cause.rank = unknown.front();
        cause.sentence = fmt::format(
            "{} {} not in any inspection of this communicator: the process has not called, has "
            "exited, or its node was not inspected",
            numbers_text(unknown), unknown.size() == 1 ? "is" : "are");
        if (!unready.awaited.empty())
            cause.evidence.push_back(fmt::format("certainly not come: {}, because ranks that came "
                                                 "wait for it",
                                                 numbers_text(unready.awaited)));
        std::vector<std::string> others;
        for (const inspect::Inspection &inspection : inspections)
            for (const inspect::Process &process : inspection.processes)
                if (!inside.contains({inspection.host, process.pid}) && process.problem.empty())
                    others.push_back(inspect::place_text(inspection.host, process));
        if (!others.empty() && others.size() <= MOST_CANDIDATES)
            cause.evidence.push_back(fmt::format("inspected, and not in this communicator: {}",
                                                 fmt::join(others, "; ")));
        unready.causes.push_back(std::move(cause));
    }
    if (!unready.causes.empty())
        return;
    // All are there: the ranks that others wait for and that wait for none.
    std::map<std::int32_t, std::vector<std::int32_t>> waiting; // by the awaited rank
    std::set<std::int32_t> wait;
    for (const UnreadyRank &rank : unready.ranks)
        for (const inspect::Awaited &one : rank.comm->awaits) {
            waiting[one.rank].push_back(rank.rank);
            wait.insert(rank.rank);
        }
    for (const auto &[awaited, ranks] : waiting) {
        if (wait.contains(awaited))
            continue;
        Cause cause;
        cause.rank = awaited;
        const auto there = std::ranges::find(unready.ranks, awaited, &UnreadyRank::rank);
        cause.sentence = fmt::format("rank {} has come and does not answer; {} wait{} for it",
                                     awaited, numbers_text(ranks), ranks.size() == 1 ? "s" : "");
        if (there != unready.ranks.end())
            for (const inspect::NcclCall &call : there->process->calls)
                if (call.comm == there->comm->address)
                    cause.evidence.push_back("its " + call_text(call));
        unready.causes.push_back(std::move(cause));
    }
    if (unready.causes.empty()) {
        Cause cause;
        cause.sentence = "all ranks have come; which one holds it up could not be read";
        unready.causes.push_back(std::move(cause));
    }
}

} // namespace

std::string title_of(const UnreadyCommunicator &comm) {
    const std::uint64_t number = comm.hash != 0 ? comm.hash : comm.magic;
    return fmt::format("{} ({} ranks)",
                       number == 0 ? "a new communicator" : fmt::format("{:#018x}", number),
                       comm.n_ranks == 0 ? "?" : fmt::format("{}", comm.n_ranks));
}

void gather_unready(const std::vector<inspect::Inspection> &inspections, Diagnosis &diagnosis) {
    std::map<Key, UnreadyCommunicator> unready;
    std::set<std::tuple<std::string, std::uint32_t, std::uint64_t>> seen;
    for (const inspect::Inspection &inspection : inspections)
        for (const inspect::Process &process : inspection.processes) {
            if (!seen.insert(
                         {inspection.host + inspection.boot_id, process.pid, process.start_ticks})
                     .second)
                continue;
            for (const inspect::UnreadyComm &comm : process.unready) {
                UnreadyCommunicator &into = unready[key_of(comm)];
                into.hash = std::max(into.hash, comm.hash);
                into.magic = comm.magic;
                into.n_ranks = comm.n_ranks;
                if (comm.parent_hash)
                    into.parent_hash = comm.parent_hash;
                into.ranks.push_back({comm.rank, inspection.host, process.pid, &process, &comm});
            }
        }
    for (auto &[key, comm] : unready) {
        std::ranges::stable_sort(comm.ranks, {}, &UnreadyRank::rank);
        if (const Communicator *ready =
                comm.hash == 0 ? nullptr : find_comm(diagnosis, comm.hash, comm.n_ranks))
            for (const Rank &rank : ready->ranks)
                comm.ready.push_back(rank.rank);
        find_absent(comm);
        find_causes(diagnosis, inspections, comm);
        diagnosis.unready.push_back(std::move(comm));
    }
}

} // namespace collwire::diagnose
