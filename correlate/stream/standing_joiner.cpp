// SPDX-License-Identifier: Apache-2.0
#include "correlate/stream/standing_joiner.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "collwire/nccl_launch_records.h"
#include "correlate/nccl/comm_name.h"
#include "correlate/stall/call_text.h"

namespace collwire::stream {
namespace {

// Silences of a communicator's ranks that are tried, the longest first.
constexpr std::size_t MOST_SILENCES = 8;
// A process that waits so much longer than another one's exit waits for that one.
constexpr std::uint64_t FINISHES_NS = 2'000'000'000;

} // namespace

void StandingJoiner::need_model(const std::string &why) {
    if (needs_model_.empty())
        needs_model_ = why;
}

// Ranks of one node, by one clock: what each called first after a silence of all is one operation.
// False: no silence is clear.
bool StandingJoiner::number_by_silence(std::vector<RankStanding *> &ranks) const {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> silences; // length, begin
    const std::vector<CollectiveCall> &first = ranks.front()->calls;
    for (std::size_t i = 0; i + 1 < first.size(); ++i)
        silences.emplace_back(first[i + 1].realtime_ns - first[i].realtime_ns,
                              first[i].realtime_ns);
    std::ranges::sort(silences, std::greater<>());
    silences.resize(std::min(silences.size(), MOST_SILENCES));
    for (const auto &[length_ns, begin_ns] : silences) {
        std::vector<std::size_t> before; // calls
        bool is_clear = true;
        for (const RankStanding *rank : ranks) {
            const auto after = std::ranges::lower_bound(rank->calls, begin_ns + length_ns / 2, {},
                                                        &CollectiveCall::realtime_ns);
            before.push_back(static_cast<std::size_t>(after - rank->calls.begin()));
            is_clear = is_clear && after != rank->calls.end() && after != rank->calls.begin() &&
                       (after - 1)->realtime_ns <= begin_ns + length_ns / 4 &&
                       after->realtime_ns >= begin_ns + length_ns - length_ns / 4;
        }
        if (!is_clear)
            continue;
        const std::size_t most = *std::ranges::max_element(before);
        std::vector<const CollectiveCall *> of_number;
        for (std::size_t r = 0; r < ranks.size() && is_clear; ++r) {
            const std::vector<CollectiveCall> &calls = ranks[r]->calls;
            const std::size_t offset = most - before[r];
            of_number.resize(std::max(of_number.size(), offset + calls.size()));
            // The last calls may differ: that is a verdict.
            for (std::size_t i = 0; i + 1 < calls.size() && is_clear; ++i) {
                const CollectiveCall *&known = of_number[offset + i];
                is_clear = known == nullptr || known->arguments == calls[i].arguments;
                known = &calls[i];
            }
        }
        if (!is_clear)
            continue;
        for (std::size_t r = 0; r < ranks.size(); ++r) {
            ranks[r]->first_number = most - before[r];
            ranks[r]->is_first_unknown = true;
        }
        return true;
    }
    return false;
}

void StandingJoiner::add(NodeSeen node) {
    if (!node.needs_model.empty())
        need_model(fmt::format("{}: {}", node.host, node.needs_model));
    if (!hosts_.emplace(node.host, nodes_.size()).second)
        need_model(fmt::format("{} has several recordings", node.host));
    if (!needs_model_.empty())
        return;
    const std::size_t index = nodes_.size();
    nodes_.push_back({node.host, 0});
    has_network_signs_ = has_network_signs_ || node.has_network_signs;
    has_errors_ = has_errors_ || node.has_errors;
    network_.queue_pairs += node.network.queue_pairs;
    network_.counted_queue_pairs += node.network.counted_queue_pairs;
    network_.sockets += node.network.sockets;
    network_.ports += node.network.ports;
    for (const JobSeen &seen : node.jobs) {
        model::ClusterJob &job = jobs_[seen.title];
        job.title = seen.title;
        job.ranks_seen += seen.processes;
        job.ranks_expected = std::max(job.ranks_expected, seen.n_ranks);
        job.hosts.push_back(node.host);
        if (seen.first_ns != 0)
            job.first_ns =
                job.first_ns == 0 ? seen.first_ns : std::min(job.first_ns, seen.first_ns);
        job.last_ns = std::max(job.last_ns, seen.last_ns);
    }
    std::map<Key, std::vector<RankStanding *>> unnumbered;
    for (RankStanding &rank : node.ranks)
        if (!rank.first_number && !rank.calls.empty())
            unnumbered[{rank.hash, rank.n_ranks}].push_back(&rank);
    for (auto &[key, ranks] : unnumbered)
        if (std::cmp_not_equal(ranks.size(), key.second) || !number_by_silence(ranks)) {
            may_be_too_short_ = true;
            need_model(fmt::format("{}: the calls of a communicator inside the node have no number",
                                   node.host));
            return;
        }
    for (RankStanding &rank : node.ranks)
        add_rank(index, std::move(rank));
}

StandingJoiner::Seen *StandingJoiner::at(Joined &joined, std::uint64_t number) {
    if (joined.operations.empty())
        joined.base = number;
    if (number < joined.base) {
        if (joined.operations.size() + (joined.base - number) > MOST_OPERATIONS)
            return nullptr;
        joined.operations.insert(joined.operations.begin(), joined.base - number, Seen{});
        joined.base = number;
    }
    while (number - joined.base >= MOST_OPERATIONS) {
        joined.operations.pop_front();
        ++joined.base;
        if (joined.operations.empty())
            joined.base = number;
    }
    if (number - joined.base >= joined.operations.size())
        joined.operations.resize(number - joined.base + 1);
    return &joined.operations[number - joined.base];
}

void StandingJoiner::add_rank(std::size_t node, RankStanding rank) {
    Joined &joined = joined_[{rank.hash, rank.n_ranks}];
    unknown_ends_ += rank.has_unknown_end ? 1 : 0;
    joined.pairs.add(node, rank);
    const roles::Device device{static_cast<std::uint32_t>(node), rank.bus_id, rank.pid,
                               rank.cuda_dev};
    const auto [place, is_new] = places_.emplace(device, devices_.size());
    if (is_new)
        devices_.push_back(device);
    joined.group.add({rank.rank, place->second}, std::move(rank.work));
    rank.work = {};
    rank.transfers = {};
    Member member;
    member.node = node;
    member.first_number = rank.first_number.value_or(0);
    const std::vector<CollectiveCall> calls = std::move(rank.calls);
    rank.calls = {};
    member.n_calls = calls.size();
    for (std::size_t i = calls.size() - std::min(calls.size(), MOST_TIMES); i < calls.size(); ++i)
        member.times_ns.push_back(calls[i].realtime_ns);
    for (std::size_t i = calls.size() - std::min(calls.size(), MOST_OPERATIONS); i < calls.size();
         ++i) {
        Seen *seen = at(joined, member.first_number + i);
        if (seen == nullptr)
            continue;
        const CollectiveCall &call = calls[i];
        if (!seen->is_called) {
            seen->arguments = call.arguments;
            seen->is_called = true;
        } else if (seen->arguments != call.arguments) {
            seen->others.emplace_back(rank.rank, call.arguments);
        }
        if (seen->first_ns == 0 || call.realtime_ns < seen->first_ns) {
            seen->first_ns = call.realtime_ns;
            seen->node = node;
        }
    }
    const std::int32_t number = rank.rank;
    member.standing = std::move(rank);
    if (!joined.members.emplace(number, std::move(member)).second)
        need_model("two processes are one rank of a communicator");
}

// By the median difference of calls for the same operations.
void StandingJoiner::add_differences(const Joined &joined, ClockGraph &clocks) {
    std::vector<std::int64_t> differences;
    const Member *first = nullptr;
    for (const auto &[rank, member] : joined.members) {
        if (first == nullptr)
            first = &member;
        if (member.node == first->node)
            continue;
        differences.clear();
        const auto number_of = [](const Member &of, std::size_t i) {
            return of.first_number + of.n_calls - of.times_ns.size() + i;
        };
        for (std::size_t i = 0; i < member.times_ns.size(); ++i) {
            const std::uint64_t number = number_of(member, i);
            if (first->times_ns.empty() || number < number_of(*first, 0) ||
                number - number_of(*first, 0) >= first->times_ns.size())
                continue;
            differences.push_back(static_cast<std::int64_t>(
                member.times_ns[i] - first->times_ns[number - number_of(*first, 0)]));
        }
        if (differences.empty())
            continue;
        const auto middle =
            differences.begin() + static_cast<std::ptrdiff_t>(differences.size() / 2);
        std::ranges::nth_element(differences, middle);
        clocks.add(first->node, member.node, *middle);
    }
}

// A receive may be called long after its send: they are weak.
void StandingJoiner::solve_clocks() {
    ClockGraph clocks(nodes_.size());
    for (const auto &[key, joined] : joined_) {
        add_differences(joined, clocks);
        for (const PairJoiner::Apart &apart : joined.pairs.clocks())
            clocks.add(apart.from, apart.to, apart.ahead_ns, true);
    }
    const std::vector<std::int64_t> ahead_ns = clocks.solve();
    for (std::size_t i = 0; i < nodes_.size(); ++i)
        nodes_[i].ahead_ns = ahead_ns[i];
}

// By their creation, which no rank leaves before all take part: clocks at calls are not exact
// enough for communicators that were created one right after the other.
std::vector<StandingJoiner::Key> StandingJoiner::in_order() const {
    ClockGraph clocks(nodes_.size());
    for (const auto &[key, joined] : joined_) {
        const Member &first = joined.members.begin()->second;
        for (const auto &[rank, member] : joined.members)
            if (member.node != first.node)
                clocks.add(
                    first.node, member.node,
                    static_cast<std::int64_t>(member.standing.begin_ns - first.standing.begin_ns));
    }
    const std::vector<std::int64_t> ahead_ns = clocks.solve();
    std::vector<std::pair<std::uint64_t, Key>> order;
    for (const auto &[key, joined] : joined_) {
        std::uint64_t begin_ns = UINT64_MAX;
        for (const auto &[rank, member] : joined.members)
            begin_ns = std::min(begin_ns, member.standing.begin_ns -
                                              static_cast<std::uint64_t>(ahead_ns[member.node]));
        order.emplace_back(begin_ns, key);
    }
    std::ranges::sort(order);
    std::vector<Key> keys;
    keys.reserve(order.size());
    for (const auto &[begin_ns, key] : order)
        keys.push_back(key);
    return keys;
}

std::uint64_t StandingJoiner::common_ns(std::size_t node, std::uint64_t time_ns) const {
    return time_ns == 0 ? 0 : time_ns - static_cast<std::uint64_t>(nodes_[node].ahead_ns);
}

stall::Operation StandingJoiner::operation_of(const Joined &joined, std::uint64_t number) const {
    stall::Operation operation;
    if (number < joined.base || number - joined.base >= joined.operations.size())
        return operation;
    const Seen &seen = joined.operations[number - joined.base];
    operation.text =
        stall::call_text(seen.arguments.func, seen.arguments.count, seen.arguments.datatype);
    if (std::ranges::none_of(joined.members, [](const auto &member) {
            return member.second.standing.is_first_unknown;
        }))
        operation.text += fmt::format(" (seq {})", number);
    std::uint64_t first_ns = UINT64_MAX;
    std::map<std::string, std::vector<std::int32_t>> variants;
    for (const auto &[rank, member] : joined.members) {
        const std::uint64_t end = member.first_number + member.n_calls;
        if (number < member.first_number || number >= end)
            continue;
        if (end - number <= member.times_ns.size())
            first_ns = std::min(
                first_ns,
                common_ns(member.node, member.times_ns[member.times_ns.size() - (end - number)]));
        if (seen.others.empty())
            continue;
        const auto other =
            std::ranges::find(seen.others, rank, &std::pair<std::int32_t, CallArguments>::first);
        const CallArguments &of = other == seen.others.end() ? seen.arguments : other->second;
        variants[stall::variant_text(of.func, of.count, of.datatype, of.root)].push_back(rank);
    }
    operation.begin_ns = first_ns == UINT64_MAX ? common_ns(seen.node, seen.first_ns) : first_ns;
    operation.differs = !seen.others.empty();
    for (auto &[text, ranks] : variants)
        operation.variants.push_back({text, std::move(ranks)});
    return operation;
}

stall::Communicator StandingJoiner::standing_of(const Key &key, const Joined &joined) const {
    stall::Communicator comm;
    comm.hash = key.first;
    comm.n_ranks = key.second;
    comm.is_comparable = true;
    std::vector<nccl::ReadName> names;
    std::set<std::uint64_t> numbers;
    const std::uint64_t end = joined.base + joined.operations.size();
    const auto refer = [&](std::uint64_t number) {
        if (number >= joined.base && number < end &&
            joined.operations[number - joined.base].is_called)
            numbers.insert(number);
    };
    for (const auto &[rank, member] : joined.members) {
        names.push_back({member.standing.name, member.standing.is_named_at_creation});
        comm.has_all_launches = member.standing.n_nodes == key.second;
        const std::uint64_t next = member.first_number + member.n_calls;
        if (member.n_calls != 0)
            refer(next - 1);
        refer(member.n_calls != 0 ? next : joined.base);
        if (member.standing.launched)
            refer(*member.standing.launched);
        if (member.standing.in_flight)
            refer(*member.standing.in_flight);
    }
    comm.name = nccl::agreed_name(names);
    std::map<std::uint64_t, std::size_t> position;
    for (const std::uint64_t number : numbers) {
        position.emplace(number, comm.operations.size());
        comm.operations.push_back(operation_of(joined, number));
    }
    const auto place = [&](std::optional<std::uint64_t> number) -> std::optional<std::size_t> {
        if (!number)
            return std::nullopt;
        const auto found = position.find(*number);
        return found == position.end() ? std::nullopt : std::optional(found->second);
    };
    std::int32_t expected = 0;
    for (const auto &[number, member] : joined.members) {
        for (; expected < number; ++expected)
            comm.missing.push_back(expected);
        ++expected;
        const RankStanding &from = member.standing;
        stall::Rank &rank = comm.ranks.emplace_back();
        rank.rank = number;
        rank.host = nodes_[member.node].host;
        rank.pid = from.pid;
        rank.until_ns = rank.whole_until_ns = common_ns(member.node, from.until_ns);
        rank.exited_ns = common_ns(member.node, from.exited_ns);
        if (member.n_calls != 0) {
            rank.called = place(member.first_number + member.n_calls - 1);
            rank.called_ns = common_ns(member.node, member.times_ns.back());
        }
        rank.launched = place(from.launched);
        rank.longest_pause_ns = from.longest_pause_ns;
        rank.in_flight = place(from.in_flight);
        if (rank.in_flight)
            rank.in_flight_seen_ns = common_ns(member.node, from.in_flight_seen_ns);
        rank.is_done = from.is_done;
    }
    for (; expected < key.second; ++expected)
        comm.missing.push_back(expected);
    for (const auto &[pair, open] : joined.pairs.open()) {
        stall::OpenPair &of = comm.open_pairs.emplace_back();
        of.from = open.is_send ? pair.first : pair.second;
        of.awaits = open.is_send ? pair.second : pair.first;
        of.text = fmt::format("{} {} rank {}",
                              stall::call_text(open.is_send ? CW_NCCL_RECV : CW_NCCL_SEND,
                                               open.call.count, open.call.datatype),
                              open.is_send ? "from" : "to", of.from);
        of.since_ns = common_ns(open.node, open.call.realtime_ns);
    }
    return comm;
}

// A process that others wait for longer than its exit takes: the model tells whether that is an
// error.
void StandingJoiner::check_exits(const Joined &joined) {
    for (const auto &[rank, exited] : joined.members) {
        if (exited.standing.exited_ns == 0)
            continue;
        const std::uint64_t exited_ns = common_ns(exited.node, exited.standing.exited_ns);
        for (const auto &[other, member] : joined.members)
            if (other != rank &&
                common_ns(member.node, member.standing.waits_until_ns) > exited_ns + FINISHES_NS)
                need_model("ranks waited for a process that had ended");
    }
}

// By the calls of what was read.
void StandingJoiner::add_guesses(stall::Standings &job) {
    std::vector<roles::GroupFacts> groups;
    std::map<Key, std::size_t> places;
    for (auto &[key, joined] : joined_) {
        places.emplace(key, groups.size());
        groups.push_back(
            joined.group.take(key.second, joined.members.begin()->second.standing.n_nodes));
    }
    const auto guesses = roles::guess_groups(std::move(groups), devices_);
    for (stall::Communicator &comm : job.communicators)
        if (comm.name.empty())
            comm.guessed_role =
                roles::guessed_role_name(guesses[places.at({comm.hash, comm.n_ranks})].role);
}

stall::Standings StandingJoiner::take() {
    solve_clocks();
    for (auto &[key, joined] : joined_) {
        joined.pairs.finish(
            [this](std::size_t node, std::uint64_t time_ns) { return common_ns(node, time_ns); });
        unknown_pairs_ += joined.pairs.unknown();
    }
    stall::Standings job;
    for (const auto &[key, joined] : joined_) {
        check_exits(joined);
        if (!joined.operations.empty() && std::ranges::any_of(joined.members, [](const auto &one) {
                return one.second.n_calls == 0 && !one.second.standing.first_number;
            })) {
            may_be_too_short_ = may_be_too_short_ || needs_model_.empty();
            need_model("a rank has no call in what was read");
        }
    }
    for (const Key &key : in_order())
        job.communicators.push_back(standing_of(key, joined_.at(key)));
    add_guesses(job);
    job.network.is_watched = network_.queue_pairs != 0 || network_.sockets != 0;
    if (network_.counted_queue_pairs != 0)
        job.network.in_favour.push_back(
            fmt::format("0 of {} queue pairs retransmitted, of the {} that were counted",
                        network_.queue_pairs, network_.counted_queue_pairs));
    if (network_.sockets != 0)
        job.network.in_favour.push_back(
            fmt::format("0 of {} TCP sockets retransmitted", network_.sockets));
    if (network_.ports != 0)
        job.network.in_favour.push_back(
            fmt::format("none of {} ports went down, none counted errors", network_.ports));
    return job;
}

std::map<std::string, std::int64_t> StandingJoiner::clocks() const {
    std::map<std::string, std::int64_t> clocks;
    for (const Node &node : nodes_)
        clocks.emplace(node.host, node.ahead_ns);
    return clocks;
}

std::vector<model::ClusterJob> StandingJoiner::jobs() const {
    std::vector<model::ClusterJob> all;
    for (const auto &[title, job] : jobs_) {
        all.push_back(job);
        std::ranges::sort(all.back().hosts);
    }
    return all;
}

} // namespace collwire::stream
