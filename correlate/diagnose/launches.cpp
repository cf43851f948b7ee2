// SPDX-License-Identifier: Apache-2.0
#include "correlate/diagnose/launches.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "correlate/diagnose/calls.h"
#include "correlate/diagnose/causes.h"
#include "correlate/diagnose/circles.h"

namespace collwire::diagnose {
namespace {

using inspect::Standing;

// Ranks of one node, which was inspected.
bool lacks_processes(const Communicator &comm) {
    return !comm.missing.empty() && comm.missing.size() <= MOST_MISSING_NAMED &&
           std::ranges::all_of(comm.ranks,
                               [](const Rank &rank) { return rank.comm->n_nodes == 1; });
}

// One after the other, counts of a job that runs differ.
bool were_read_together(const Communicator &comm) {
    return std::ranges::all_of(
        comm.ranks, [&](const Rank &rank) { return rank.ports == comm.ranks.front().ports; });
}

bool is_in_doubt(const Communicator &comm) {
    return !comm.is_stuck && !comm.is_ambiguous && were_read_together(comm) &&
           (!comm.behind.empty() || lacks_processes(comm)) &&
           std::ranges::all_of(comm.ranks, [](const Rank &rank) {
               return rank.comm->has_launched == false &&
                      rank.standing.standing != Standing::Moving &&
                      rank.standing.standing != Standing::Starting;
           });
}

// Where ranks wait: in communicators that are stuck, and ahead of others in those in doubt.
struct WaitingPlaces {
    std::set<Place> in_stuck, ahead;
};

WaitingPlaces waiting_places(const Diagnosis &diagnosis) {
    WaitingPlaces places;
    for (const Communicator &comm : diagnosis.communicators) {
        const bool in_doubt = is_in_doubt(comm);
        for (const Rank &rank : comm.ranks) {
            if (comm.is_stuck && waits_in_operation(rank))
                places.in_stuck.insert(place_of(rank));
            if (in_doubt && behind_by(comm, rank.rank) == 0)
                places.ahead.insert(place_of(rank));
        }
    }
    return places;
}

// The ranks that lag and wait nowhere else; if all wait, but only for ranks that lag elsewhere,
// all of them: they may be a circle.
std::vector<const Rank *> culprits_of(const Communicator &comm, const WaitingPlaces &waiting) {
    std::vector<const Rank *> behind, culprits;
    const std::set<std::int32_t> in_calls = ranks_held_up_in_calls(comm);
    for (const Rank &rank : comm.ranks)
        if (behind_by(comm, rank.rank) != 0 && !in_calls.contains(rank.rank) &&
            !waiting.in_stuck.contains(place_of(rank)))
            behind.push_back(&rank);
    std::ranges::copy_if(behind, std::back_inserter(culprits), [&waiting](const Rank *rank) {
        return !waiting.ahead.contains(place_of(*rank));
    });
    return culprits.empty() ? behind : culprits;
}

void add(Communicator &comm, Cause cause) {
    cause.evidence.emplace(cause.evidence.begin(),
                           "no rank launched anything between the two samples");
    comm.causes.push_back(std::move(cause));
    comm.is_judged_by_launches = true;
}

} // namespace

void find_ranks_behind(Diagnosis &diagnosis) {
    const WaitingPlaces waiting = waiting_places(diagnosis);
    for (Communicator &comm : diagnosis.communicators) {
        if (!is_in_doubt(comm))
            continue;
        if (lacks_processes(comm)) {
            for (const std::int32_t rank : comm.missing)
                add(comm, cause_of_missing(comm, rank, {}));
            continue;
        }
        const std::size_t n_ahead = comm.ranks.size() - comm.behind.size();
        for (const Rank *rank : culprits_of(comm, waiting)) {
            Cause cause = cause_of(comm, *rank, {});
            cause.sentence +=
                fmt::format("; {} rank{} launched it", n_ahead, n_ahead == 1 ? " has" : "s have");
            add(comm, std::move(cause));
        }
    }
    for (Communicator &comm : diagnosis.communicators)
        comm.is_stuck = comm.is_stuck || comm.is_judged_by_launches;
}

} // namespace collwire::diagnose
