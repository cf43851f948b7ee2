// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "correlate/diagnose/calls.h"
#include "correlate/diagnose/causes.h"
#include "correlate/diagnose/circles.h"
#include "correlate/diagnose/diagnosis.h"
#include "correlate/diagnose/evidence.h"
#include "correlate/diagnose/gather.h"
#include "correlate/diagnose/launches.h"
#include "correlate/diagnose/mismatches.h"
#include "correlate/diagnose/network.h"
#include "correlate/diagnose/unready.h"
#include "correlate/inspect/job_text.h"
#include "correlate/roles/label.h"

namespace collwire::diagnose {
namespace {

using inspect::Standing;

// A process that is throttled for a tenth of the time is slow by that.
constexpr std::uint64_t SLOW_DIVISOR = 10;

// Communicators of captures that share a hash may have different ones.
std::string role_of(const Communicator &comm, const std::vector<CapturedRole> &roles) {
    const CapturedRole *found = nullptr;
    for (const CapturedRole &role : roles) {
        if (role.hash != comm.hash || role.n_ranks != comm.n_ranks)
            continue;
        if (found != nullptr && found->guessed_role != role.guessed_role)
            return {};
        found = &role;
    }
    return found == nullptr ? std::string() : found->guessed_role;
}

bool holds_up(Standing standing) {
    return standing == Standing::Kernel || standing == Standing::Proxy ||
           standing == Standing::Peers || standing == Standing::Network ||
           standing == Standing::Unknown;
}

using Waiting = std::map<std::int32_t,
                         std::set<std::int32_t>>; // key: the awaited rank; value: the waiting ranks

// Sends and receives go between any two ranks, and NVLS adds up the data of all GPUs of a node.
bool involves_whole_node(const Rank &rank) {
    return std::ranges::any_of(rank.proxy->operations, [](const inspect::Operation &operation) {
        return !operation.is_queued &&
               (operation.is_p2p || operation.algorithm.starts_with("NVLS"));
    });
}

// The ranks that its kernel may wait for without a proxy: on these channels its neighbours in
// rings and trees, or all of its node.
std::set<std::int32_t> local_neighbours(const Communicator &comm, const Rank &rank) {
    std::set<std::int32_t> neighbours;
    if (rank.comm->is_shared || rank.proxy == nullptr)
        return neighbours; // its proxy numbers peers by another communicator's ranks
    if (involves_whole_node(rank))
        for (const Rank &other : comm.ranks)
            if (other.comm->node == rank.comm->node && other.rank != rank.rank)
                neighbours.insert(other.rank);
    const std::set<std::int32_t> channels{rank.standing.channels.begin(),
                                          rank.standing.channels.end()};
    std::set<std::pair<std::int32_t, std::int32_t>> remote; // channel, rank
    for (const inspect::Operation &operation : rank.proxy->operations)
        for (const inspect::Transfer &transfer : operation.transfers)
            remote.insert({transfer.channel, transfer.peer});
    const auto add = [&](std::int32_t channel, std::int32_t peer) {
        if (peer >= 0 && peer != rank.rank && channels.contains(channel) &&
            !remote.contains({channel, peer}))
            neighbours.insert(peer);
    };
    if (rank.comm->local_ranks <= 1)
        return neighbours;
    for (const inspect::Communicator::Ring &ring : rank.comm->rings) {
        add(ring.channel, ring.prev);
        add(ring.channel, ring.next);
    }
    for (const inspect::Communicator::Tree &tree : rank.comm->trees) {
        add(tree.channel, tree.up);
        for (const std::int32_t down : tree.down)
            add(tree.channel, down);
    }
    return neighbours;
}

// A proxy does not see what a kernel waits for inside its node. A local neighbour that lags, does
// not run or is itself held up is a more likely cause than the kernel.
bool is_held_up_locally(const Communicator &comm, const Rank &rank, Waiting &waited_for) {
    bool held_up = false;
    for (const std::int32_t neighbour : local_neighbours(comm, rank)) {
        const Rank *other = find_rank(comm, neighbour);
        const Standing standing = other == nullptr ? Standing::Unknown : other->standing.standing;
        const bool explains = standing == Standing::Idle
                                  ? behind_by(comm, neighbour) != 0
                                  : standing == Standing::Stopped || standing == Standing::Peers ||
                                        standing == Standing::Network ||
                                        standing == Standing::Proxy;
        if (explains)
            waited_for[neighbour].insert(rank.rank);
        held_up = held_up || explains;
    }
    return held_up;
}

std::set<std::int32_t> waiting_ranks(const Communicator &comm) {
    std::set<std::int32_t> waiting;
    for (const Rank &rank : comm.ranks)
        if (waits_in_operation(rank))
            waiting.insert(rank.rank);
    return waiting;
}

void find_causes(Communicator &comm) {
    Waiting waited_for;
    bool moving = false, failed = false;
    for (const Rank &rank : comm.ranks) {
        moving = moving || rank.standing.standing == Standing::Moving ||
                 rank.standing.standing == Standing::Starting;
        failed = failed || has_failed(rank);
        comm.is_stuck = comm.is_stuck || holds_up(rank.standing.standing);
        for (const inspect::WaitsFor &one : rank.standing.waits_for)
            waited_for[one.peer].insert(rank.rank);
    }
    // A communicator of one rank has no other rank to hold up.
    const bool stopped = comm.n_ranks > 1 && std::ranges::any_of(comm.ranks, [](const Rank &rank) {
                             return rank.standing.standing == Standing::Stopped;
                         });
    comm.is_stuck = (comm.is_stuck && !moving) || failed || stopped;
    if (!comm.is_stuck)
        return;
    std::vector<Cause> &causes = comm.causes;
    for (const Rank &rank : comm.ranks)
        if (rank.standing.standing == Standing::Stopped)
            causes.push_back(cause_of(comm, rank, waited_for[rank.rank]));
    const Ends ends = ends_of(comm);
    std::ranges::move(find_mismatches(comm, ends), std::back_inserter(causes));
    const bool is_explained = !causes.empty();
    // If ranks failed and others are missing, the failure probably started with the missing ones.
    if (failed && comm.missing.size() <= MOST_MISSING_NAMED)
        for (const std::int32_t rank : comm.missing)
            causes.push_back(cause_of_missing(comm, rank, waited_for[rank]));
    for (const Rank &rank : comm.ranks)
        if (has_failed(rank))
            causes.push_back(cause_of_error(comm, rank));
    if (is_explained || failed)
        return;
    std::ranges::move(find_network_causes(comm, ends), std::back_inserter(causes));
    // A rank that waits for others is held up by them; the others are the root causes.
    std::set<std::int32_t> held_up;
    for (const Rank &rank : comm.ranks)
        if (rank.standing.standing == Standing::Kernel &&
            is_held_up_locally(comm, rank, waited_for))
            held_up.insert(rank.rank);
    const std::set<std::int32_t> in_calls = ranks_held_up_in_calls(comm);
    held_up.insert(in_calls.begin(), in_calls.end());
    for (const Rank &rank : comm.ranks)
        if (!in_calls.empty() && !in_calls.contains(rank.rank) && behind_by(comm, rank.rank) != 0)
            waited_for[rank.rank].insert(in_calls.begin(), in_calls.end());
    for (const Rank &rank : comm.ranks) {
        const Standing standing = rank.standing.standing;
        const auto found = waited_for.find(rank.rank);
        const bool is_root = standing == Standing::Proxy ||
                             (standing == Standing::Kernel && !held_up.contains(rank.rank)) ||
                             (standing == Standing::Idle && found != waited_for.end() &&
                              !held_up.contains(rank.rank));
        if (is_root)
            causes.push_back(cause_of(
                comm, rank, found == waited_for.end() ? std::set<std::int32_t>{} : found->second));
    }
    for (const std::int32_t rank : comm.missing)
        if (const auto found = waited_for.find(rank); found != waited_for.end())
            causes.push_back(cause_of_missing(comm, rank, found->second));
    // Kernels wait for a rank of their node that no proxy waits for.
    if (causes.empty())
        for (const Rank &rank : comm.ranks)
            if (rank.standing.standing == Standing::Idle && behind_by(comm, rank.rank) != 0 &&
                !in_calls.contains(rank.rank))
                causes.push_back(cause_of(comm, rank, waiting_ranks(comm)));
    // No inspected rank has a known cause.
    if (causes.empty() && comm.missing.size() <= MOST_MISSING_NAMED)
        for (const std::int32_t rank : comm.missing)
            causes.push_back(cause_of_missing(comm, rank, {}));
    if (causes.empty()) {
        Cause cause;
        cause.sentence = "all ranks wait for each other, or what they wait for could not be read";
        if (!comm.missing.empty())
            cause.sentence = fmt::format("the inspected ranks wait for each other: one of the {} "
                                         "without an inspection holds them up. Fix: inspect its "
                                         "node, too",
                                         comm.missing.size());
        causes.push_back(std::move(cause));
    }
}

// It moves, and its CPU limit stops its threads again and again.
void find_slow_ranks(Communicator &comm) {
    if (comm.is_stuck)
        return;
    for (const Rank &rank : comm.ranks) {
        if (!is_throttled(rank) ||
            rank.process->throttling->throttled_ns < rank.between_ns / SLOW_DIVISOR)
            continue;
        Cause cause;
        cause.kind = Kind::Host;
        cause.rank = rank.rank;
        cause.sentence = fmt::format("{} is slow: the CPU limit of its cgroup stops its threads",
                                     name_of(comm, rank.rank));
        cause.evidence = evidence_of(rank);
        comm.causes.push_back(std::move(cause));
    }
}

} // namespace

std::string_view kind_name(Kind kind) {
    switch (kind) {
    case Kind::Host:
        return "HOST";
    case Kind::Application:
        return "APPLICATION";
    case Kind::Gpu:
        return "GPU";
    case Kind::Network:
        return "NETWORK";
    case Kind::Mismatch:
        return "MISMATCH";
    case Kind::Missing:
        return "MISSING";
    case Kind::Error:
        return "ERROR";
    case Kind::Deadlock:
        return "DEADLOCK";
    case Kind::Nccl:
        return "NCCL";
    case Kind::Unknown:
        break;
    }
    return "UNKNOWN";
}

const Rank *find_rank(const Communicator &comm, std::int32_t rank) {
    const auto found = std::ranges::find(comm.ranks, rank, &Rank::rank);
    return found == comm.ranks.end() ? nullptr : &*found;
}

std::string name_of(const Communicator &comm, std::int32_t rank) {
    const Rank *found = find_rank(comm, rank);
    return found == nullptr ? fmt::format("rank {}", rank)
                            : fmt::format("rank {} ({})", rank,
                                          inspect::place_text(found->host, *found->process));
}

std::string title_of(const Communicator &comm) {
    return roles::title_of(comm.name, comm.hash, comm.guessed_role, comm.n_ranks);
}

Diagnosis diagnose(const std::vector<inspect::Inspection> &inspections,
                   const std::vector<CapturedRole> &roles) {
    Diagnosis diagnosis = gather(inspections);
    for (Communicator &comm : diagnosis.communicators)
        if (comm.name.empty() && !comm.is_ambiguous)
            comm.guessed_role = role_of(comm, roles);
    for (Communicator &comm : diagnosis.communicators) {
        find_causes(comm);
        find_waiting_calls(comm);
    }
    find_ranks_behind(diagnosis);
    for (Communicator &comm : diagnosis.communicators)
        find_slow_ranks(comm);
    gather_unready(inspections, diagnosis);
    join_circles(diagnosis);
    std::ranges::stable_sort(diagnosis.communicators, {}, [](const Communicator &comm) {
        return std::pair{!comm.is_stuck, comm.causes.empty()};
    });
    return diagnosis;
}

} // namespace collwire::diagnose
