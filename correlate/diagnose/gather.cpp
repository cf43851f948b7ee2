// SPDX-License-Identifier: Apache-2.0
#include "correlate/diagnose/gather.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

namespace collwire::diagnose {
namespace {

constexpr std::int32_t MOST_RANKS = 1 << 20;
// Nodes are inspected at different times: a wait in one inspection may be over in the next.
constexpr std::uint64_t FAR_APART_NS = 60'000'000'000;

// NCCL may reuse a hash for another communicator; a different size proves that it is another one.
using Key = std::pair<std::uint64_t, std::int32_t>;

const inspect::Proxy *proxy_of(const inspect::Process &process, const inspect::Communicator &comm) {
    const auto found =
        std::ranges::find(process.proxies, comm.proxy_state, &inspect::Proxy::address);
    return found == process.proxies.end() ? nullptr : &*found;
}

void find_missing(Communicator &comm) {
    std::set<std::int32_t> seen;
    for (const Rank &rank : comm.ranks)
        comm.is_ambiguous = !seen.insert(rank.rank).second || comm.is_ambiguous;
    for (std::int32_t rank = 0; rank < std::min(comm.n_ranks, MOST_RANKS); ++rank)
        if (!seen.contains(rank))
            comm.missing.push_back(rank);
}

// NCCL's own counts are comparable if each communicator has its own counter (2.26 and later) or
// shares it with no other.
void find_behind(Communicator &comm) {
    if (comm.is_ambiguous)
        return;
    for (const Rank &rank : comm.ranks) {
        const bool is_own = rank.comm->launched_by_function || !rank.comm->is_shared;
        if (!rank.comm->launched || !is_own) {
            comm.most_launched.reset();
            return;
        }
        comm.most_launched = std::max(comm.most_launched.value_or(0), *rank.comm->launched);
    }
    for (const Rank &rank : comm.ranks)
        if (const std::uint64_t by = *comm.most_launched - *rank.comm->launched; by != 0)
            comm.behind.push_back({rank.rank, by});
}

void warn_of_times(const std::vector<inspect::Inspection> &inspections, Diagnosis &diagnosis) {
    std::uint64_t first = UINT64_MAX, last = 0;
    for (const inspect::Inspection &inspection : inspections) {
        first = std::min(first, inspection.realtime_ns);
        last = std::max(last, inspection.realtime_ns);
    }
    if (last > first && last - first > FAR_APART_NS)
        diagnosis.warnings.push_back(
            fmt::format("the nodes were inspected {} s apart: a wait in one file may be over in "
                        "another. Fix: inspect all nodes at the same time",
                        (last - first) / 1'000'000'000));
}

} // namespace

Diagnosis gather(const std::vector<inspect::Inspection> &inspections) {
    Diagnosis diagnosis;
    diagnosis.n_witnesses = inspections.size();
    std::map<Key, Communicator> comms;
    std::set<std::tuple<std::string, std::uint32_t, std::uint64_t>> processes;
    for (const inspect::Inspection &inspection : inspections)
        for (const inspect::Process &process : inspection.processes) {
            // One file given twice, or one process inspected twice.
            if (!processes
                     .insert(
                         {inspection.host + inspection.boot_id, process.pid, process.start_ticks})
                     .second) {
                diagnosis.warnings.push_back(
                    fmt::format("{} pid {} is in more than one file: the first one counts",
                                inspection.host, process.pid));
                continue;
            }
            if (!process.problem.empty())
                diagnosis.warnings.push_back(
                    fmt::format("{} pid {}: {}", inspection.host, process.pid, process.problem));
            for (const inspect::Communicator &comm : process.communicators) {
                Communicator &into = comms[{comm.hash, comm.n_ranks}];
                into.hash = comm.hash;
                into.n_ranks = comm.n_ranks;
                if (into.name.empty())
                    into.name = comm.name;
                Rank rank;
                rank.rank = comm.rank;
                rank.host = inspection.host;
                rank.pid = process.pid;
                rank.realtime_ns = inspection.realtime_ns;
                rank.between_ns = inspection.between_ns;
                rank.process = &process;
                rank.comm = &comm;
                rank.ports = &inspection.ports;
                rank.proxy = proxy_of(process, comm);
                if (rank.proxy != nullptr)
                    rank.standing = inspect::standing_of(*rank.proxy, process);
                into.ranks.push_back(std::move(rank));
            }
        }
    for (auto &[key, comm] : comms) {
        std::ranges::stable_sort(comm.ranks, {}, &Rank::rank);
        find_missing(comm);
        find_behind(comm);
        diagnosis.communicators.push_back(std::move(comm));
    }
    warn_of_times(inspections, diagnosis);
    return diagnosis;
}

} // namespace collwire::diagnose
