// SPDX-License-Identifier: Apache-2.0
#include "correlate/diagnose/circles.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "correlate/diagnose/causes.h"
#include "correlate/diagnose/evidence.h"

namespace collwire::diagnose {
namespace {

using inspect::Standing;

class Places {
public:
    std::size_t number_of(const Place &place) {
        return numbers_.emplace(place, numbers_.size()).first->second;
    }

private:
    std::map<Place, std::size_t> numbers_;
};

// A rank that others wait for in this communicator, and that has not launched there.
bool holds_up_others(const Communicator &comm, std::int32_t rank) {
    return std::ranges::any_of(comm.causes, [rank](const Cause &cause) {
        return cause.rank == rank && (cause.kind == Kind::Application || cause.kind == Kind::Host);
    });
}

std::string operation_of(const Rank &rank) {
    if (rank.proxy != nullptr)
        for (const inspect::Operation &operation : rank.proxy->operations)
            if (!operation.is_queued && !operation.function.empty())
                return operation.function;
    return "an operation";
}

std::string behind_text(const Communicator &comm, std::int32_t rank) {
    const std::uint64_t by = behind_by(comm, rank);
    return by == 0 ? "has not launched that"
                   : fmt::format("is {} operation{} behind there", by, by == 1 ? "" : "s");
}

constexpr std::size_t MOST_AWAITED = 64; // ranks of a communicator

using Edges = std::map<std::size_t, std::vector<WaitEdge>>; // by `from`

// Ways from `first` back to it, breadth first: the shortest one.
std::optional<std::vector<WaitEdge>> circle_through(std::size_t first, const Edges &edges) {
    std::map<std::size_t, WaitEdge> came_by;
    std::deque<std::size_t> next{first};
    while (!next.empty()) {
        const std::size_t at = next.front();
        next.pop_front();
        const auto out = edges.find(at);
        if (out == edges.end())
            continue;
        for (const WaitEdge &edge : out->second) {
            if (edge.to == first) {
                std::vector<WaitEdge> circle{edge};
                for (std::size_t back = at; back != first; back = came_by.at(back).from)
                    circle.push_back(came_by.at(back));
                std::ranges::reverse(circle);
                return circle;
            }
            if (edge.to != first && came_by.emplace(edge.to, edge).second)
                next.push_back(edge.to);
        }
    }
    return std::nullopt;
}

// All that have launched wait for one that has not, if not directly.
bool waits_for_launches(const Communicator &comm, const Rank &rank) {
    return (comm.is_judged_by_launches ? behind_by(comm, rank.rank) == 0
                                       : waits_in_operation(rank)) ||
           call_of(rank) != nullptr;
}

} // namespace

Place place_of(const Rank &rank) {
    return {rank.host, rank.pid, rank.comm->device};
}

bool waits_in_operation(const Rank &rank) {
    const Standing standing = rank.standing.standing;
    return standing == Standing::Peers || standing == Standing::Kernel ||
           standing == Standing::Network;
}

std::vector<std::vector<WaitEdge>> find_circles(std::vector<WaitEdge> edges) {
    std::ranges::sort(edges);
    edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
    std::vector<std::vector<WaitEdge>> circles;
    // A node that waits for none, or that none waits for, is in no circle.
    for (bool again = true; again;) {
        std::set<std::size_t> waiting, awaited;
        for (const WaitEdge &edge : edges) {
            waiting.insert(edge.from);
            awaited.insert(edge.to);
        }
        again = std::erase_if(edges, [&](const WaitEdge &edge) {
                    return !waiting.contains(edge.to) || !awaited.contains(edge.from);
                }) != 0;
    }
    Edges by_node;
    for (const WaitEdge &edge : edges)
        by_node[edge.from].push_back(edge);
    std::set<std::size_t> done;
    for (const auto &[node, out] : by_node) {
        if (done.contains(node))
            continue;
        auto circle = circle_through(node, by_node);
        if (!circle)
            continue;
        std::set<std::size_t> comms;
        bool is_new = true;
        for (const WaitEdge &one : *circle) {
            comms.insert(one.comm);
            is_new = is_new && !done.contains(one.from);
        }
        if (comms.size() < 2 || !is_new)
            continue;
        for (const WaitEdge &one : *circle)
            done.insert(one.from);
        circles.push_back(std::move(*circle));
    }
    return circles;
}

void join_circles(Diagnosis &diagnosis) {
    Places places;
    std::vector<WaitEdge> edges;
    std::map<WaitEdge, std::pair<const Rank *, const Rank *>> ranks; // waiting, awaited
    for (std::size_t i = 0; i < diagnosis.communicators.size(); ++i) {
        const Communicator &comm = diagnosis.communicators[i];
        if (!comm.is_stuck || comm.is_ambiguous)
            continue;
        std::size_t n_awaited = 0;
        for (const Rank &awaited : comm.ranks) {
            if (n_awaited >= MOST_AWAITED || !holds_up_others(comm, awaited.rank) ||
                awaited.standing.standing != Standing::Idle)
                continue;
            ++n_awaited;
            for (const Rank &waiting : comm.ranks) {
                if (!waits_for_launches(comm, waiting))
                    continue;
                const WaitEdge edge{places.number_of(place_of(waiting)),
                                    places.number_of(place_of(awaited)), i};
                edges.push_back(edge);
                ranks.emplace(edge, std::pair{&waiting, &awaited});
            }
        }
    }
    const auto circles = find_circles(edges);
    for (const std::vector<WaitEdge> &found : circles) {
        Circle circle;
        std::set<std::size_t> comms;
        for (const WaitEdge &edge : found) {
            const auto &[waiting, awaited] = ranks.at(edge);
            const Communicator &comm = diagnosis.communicators[edge.comm];
            comms.insert(edge.comm);
            circle.steps.push_back(
                {comm.hash, waiting->rank, awaited->rank, waiting->host, waiting->pid,
                 fmt::format("{} is in {} of {} and waits there for {}, which "
                             "{}",
                             name_of(comm, waiting->rank), operation_of(*waiting), title_of(comm),
                             name_of(comm, awaited->rank), behind_text(comm, awaited->rank))});
        }
        // Each has launched in the communicator where it waits, and not in that where it is
        // awaited.
        for (std::size_t i = 0; i < found.size(); ++i) {
            const WaitEdge &before = found[(i + found.size() - 1) % found.size()];
            const Communicator &first = diagnosis.communicators[found[i].comm];
            const Communicator &later = diagnosis.communicators[before.comm];
            if (found[i].comm != before.comm)
                circle.orders.push_back(fmt::format("{}: first {}, {} not yet",
                                                    name_of(first, ranks.at(found[i]).first->rank),
                                                    title_of(first), title_of(later)));
        }
        circle.sentence = fmt::format("{} ranks wait for each other in {} communicators: they "
                                      "launch on these in different orders",
                                      found.size(), comms.size());
        const std::size_t number = diagnosis.circles.size();
        diagnosis.circles.push_back(std::move(circle));
        for (const WaitEdge &edge : found) {
            Communicator &comm = diagnosis.communicators[edge.comm];
            const std::int32_t awaited = ranks.at(edge).second->rank;
            const auto cause = std::ranges::find_if(comm.causes, [awaited](const Cause &one) {
                return one.rank == awaited &&
                       (one.kind == Kind::Application || one.kind == Kind::Host);
            });
            if (cause == comm.causes.end())
                continue;
            cause->kind = Kind::Deadlock;
            cause->circle = number;
            cause->sentence += fmt::format(" (circle {})", number + 1);
        }
    }
}

} // namespace collwire::diagnose
