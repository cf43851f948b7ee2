// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "correlate/capture/reader.h"
#include "correlate/nccl/common_clock.h"
#include "correlate/nccl/describe.h"
#include "correlate/nccl/resolve.h"

namespace collwire::identity {

using model::Model;

namespace {

// Clocks are this far apart, and lives are not compared finer.
constexpr std::uint64_t SLACK_NS = 2'000'000'000;
// Communicators of one hash that are looked at; and how much nearer the nearest has to be.
constexpr std::size_t MAX_LOOKED_AT = 32;
constexpr std::uint64_t CLEARLY_NEARER = 4;

// Instances that belong together, and what others are compared with.
struct Group {
    std::vector<Index> instances;
    std::set<std::int32_t> ranks;
    std::uint64_t latest_begin_ns = 0;
    std::uint64_t first_end_ns = UINT64_MAX;
    std::uint64_t created_ns = 0; // 0: not seen
    std::uint64_t begin_ns = UINT64_MAX;

    void take(const Group &other) {
        instances.insert(instances.end(), other.instances.begin(), other.instances.end());
        ranks.insert(other.ranks.begin(), other.ranks.end());
        latest_begin_ns = std::max(latest_begin_ns, other.latest_begin_ns);
        first_end_ns = std::min(first_end_ns, other.first_end_ns);
        begin_ns = std::min(begin_ns, other.begin_ns);
        if (created_ns == 0)
            created_ns = other.created_ns;
    }
};

class Joiner {
public:
    explicit Joiner(Model &model) : model_(model), nccl_(model.nccl), clock_(model) {}

    void run() {
        leader_.resize(nccl_.instances.size());
        std::iota(leader_.begin(), leader_.end(), Index{0});
        join_recordings();
        join_by_queue_pairs();
        join_by_sockets();
        join_by_lifetime();
        order_communicators();
        find_parents();
        give_mirrored_links();
        for (Index index = 0; index < nccl_.links.size(); ++index)
            if (const Index comm = only_communicator(nccl_, nccl_.links[index]); comm != NONE)
                nccl_.communicators[comm].links.push_back(index);
    }

private:
    Index leader_of(Index index) {
        while (leader_[index] != index)
            index = leader_[index] = leader_[leader_[index]];
        return index;
    }
    void unite(Index a, Index b) { leader_[leader_of(b)] = leader_of(a); }

    // One rank in several recordings of a host, one after the other.
    void join_recordings() {
        using Key = std::tuple<Index, std::uint32_t, std::uint64_t, std::uint64_t, std::int32_t>;
        std::map<Key, Index> last;
        std::vector<Index> order(nccl_.instances.size());
        std::iota(order.begin(), order.end(), Index{0});
        std::stable_sort(order.begin(), order.end(), [&](Index a, Index b) {
            return nccl_.instances[a].begin_ns < nccl_.instances[b].begin_ns;
        });
        for (const Index index : order) {
            const Instance &instance = nccl_.instances[index];
            const auto [found, is_new] =
                last.try_emplace(Key{instance.host, instance.record.tgid, instance.record.comm,
                                     instance.record.comm_hash, instance.record.rank},
                                 index);
            if (is_new)
                continue;
            const Instance &before = nccl_.instances[found->second];
            if (is_same_rank(before, instance) && !before.ended && !instance.created)
                unite(found->second, index);
            found->second = index;
        }
    }

    [[nodiscard]] bool can_be_one(const Instance &a, const Instance &b) const {
        return a.record.comm_hash == b.record.comm_hash && a.record.n_ranks == b.record.n_ranks &&
               (a.record.rank != b.record.rank || is_same_rank(a, b));
    }

    // The two ends of a connection: the one instance of the other end that can be meant.
    void join_ends(const Link &a_link, const Link &b_link) {
        for (const Index a : a_link.instances) {
            Index match = NONE;
            bool is_ambiguous = false;
            for (const Index b : b_link.instances) {
                if (!can_be_one(nccl_.instances[a], nccl_.instances[b]))
                    continue;
                is_ambiguous = is_ambiguous || match != NONE;
                match = b;
            }
            if (match != NONE && !is_ambiguous)
                unite(a, match);
        }
    }

    void join_by_queue_pairs() {
        std::set<std::pair<Index, Index>> done;
        for (Index index = 0; index < model_.qps.size(); ++index) {
            const Index peer = model_.qps[index].peer;
            const Index link = nccl_.qps[index].link;
            if (peer == NONE || link == NONE || nccl_.qps[peer].link == NONE ||
                !done.insert({link, nccl_.qps[peer].link}).second)
                continue;
            join_ends(nccl_.links[link], nccl_.links[nccl_.qps[peer].link]);
        }
    }

    void join_by_sockets() {
        using Address = std::tuple<model::Gid, std::uint16_t, model::Gid, std::uint16_t>;
        std::map<Address, Index> links;
        const auto address = [&](Index socket, bool is_turned) {
            const cw_tcp_socket &from = nccl_.gathered.sockets[socket].last;
            model::Gid local{};
            model::Gid remote{};
            std::copy_n(from.local_address, local.size(), local.begin());
            std::copy_n(from.remote_address, remote.size(), remote.begin());
            return is_turned ? Address{remote, from.remote_port, local, from.local_port}
                             : Address{local, from.local_port, remote, from.remote_port};
        };
        for (Index index = 0; index < nccl_.links.size(); ++index)
            for (const Index socket : nccl_.links[index].sockets)
                links.insert_or_assign(address(socket, false), index);
        for (Index index = 0; index < nccl_.links.size(); ++index)
            for (const Index socket : nccl_.links[index].sockets)
                if (const auto found = links.find(address(socket, true)); found != links.end())
                    join_ends(nccl_.links[index], nccl_.links[found->second]);
    }

    void join_by_lifetime() {
        std::map<Index, Group> by_leader;
        for (Index index = 0; index < nccl_.instances.size(); ++index)
            by_leader[leader_of(index)].take(group_of(index));
        std::map<std::pair<std::uint64_t, std::int32_t>, std::vector<Group>> by_hash;
        for (auto &[leader, group] : by_leader) {
            const cw_nccl_comm &record = nccl_.instances[leader].record;
            by_hash[{record.comm_hash, record.n_ranks}].push_back(std::move(group));
        }
        for (auto &[hash, groups] : by_hash)
            for (Group &group : joined(std::move(groups)))
                add_communicator(group);
    }

    Group group_of(Index index) const {
        const Instance &instance = nccl_.instances[index];
        Group group;
        group.instances = {index};
        group.ranks = {instance.record.rank};
        group.begin_ns = group.latest_begin_ns = clock_.time_ns(instance.host, instance.begin_ns);
        if (instance.end_ns != 0)
            group.first_end_ns = clock_.time_ns(instance.host, instance.end_ns);
        if (instance.created)
            group.created_ns = group.begin_ns;
        return group;
    }

    std::vector<Group> joined(std::vector<Group> groups) const {
        // Those that were seen from their creation first: what was met later is compared with them.
        std::stable_sort(groups.begin(), groups.end(), [](const Group &a, const Group &b) {
            return std::pair(a.created_ns == 0, a.begin_ns) <
                   std::pair(b.created_ns == 0, b.begin_ns);
        });
        std::vector<Group> whole;
        for (const Group &group : groups) {
            Group *best = nullptr;
            std::uint64_t best_ns = UINT64_MAX;
            std::uint64_t second_ns = UINT64_MAX;
            for (std::size_t i = whole.size(); i > 0 && whole.size() - i < MAX_LOOKED_AT; --i) {
                if (!fit(whole[i - 1], group))
                    continue;
                const std::uint64_t apart_ns = apart(whole[i - 1], group);
                if (apart_ns < best_ns) {
                    second_ns = best_ns;
                    best_ns = apart_ns;
                    best = &whole[i - 1];
                } else {
                    second_ns = std::min(second_ns, apart_ns);
                }
            }
            const bool is_clear = second_ns == UINT64_MAX || second_ns / CLEARLY_NEARER > best_ns;
            if (best != nullptr && is_clear)
                best->take(group);
            else
                whole.push_back(group);
        }
        return whole;
    }

    static bool fit(const Group &a, const Group &b) {
        const auto is_after = [](std::uint64_t time_ns, std::uint64_t end_ns) {
            return end_ns < UINT64_MAX - SLACK_NS && time_ns > end_ns + SLACK_NS;
        };
        if (is_after(b.latest_begin_ns, a.first_end_ns) ||
            is_after(a.latest_begin_ns, b.first_end_ns))
            return false;
        // What was there before the other was created is another one.
        if ((a.created_ns != 0 && is_after(a.created_ns, b.begin_ns)) ||
            (b.created_ns != 0 && is_after(b.created_ns, a.begin_ns)))
            return false;
        return std::none_of(b.ranks.begin(), b.ranks.end(),
                            [&](std::int32_t rank) { return a.ranks.contains(rank); });
    }

    // Of two that were met at some time only, no one is nearer than another.
    static std::uint64_t apart(const Group &a, const Group &b) {
        if (a.created_ns == 0 || b.created_ns == 0)
            return 0;
        return a.created_ns > b.created_ns ? a.created_ns - b.created_ns
                                           : b.created_ns - a.created_ns;
    }

    void add_communicator(Group &group) {
        std::sort(group.instances.begin(), group.instances.end(), [&](Index a, Index b) {
            const Instance &one = nccl_.instances[a];
            const Instance &other = nccl_.instances[b];
            return std::tie(one.record.rank, one.begin_ns, a) <
                   std::tie(other.record.rank, other.begin_ns, b);
        });
        Communicator comm;
        const cw_nccl_comm &record = nccl_.instances[group.instances.front()].record;
        comm.hash = record.comm_hash;
        comm.n_ranks = record.n_ranks;
        comm.instances = std::move(group.instances);
        bool all_ended = true;
        for (const Index index : comm.instances) {
            const Instance &instance = nccl_.instances[index];
            const model::Host &host = model_.hosts[instance.host];
            comm.n_nodes = std::max(comm.n_nodes, instance.record.n_nodes);
            if (comm.name.empty())
                comm.name = std::string(capture::text_of(instance.record.name));
            if (instance.created)
                comm.created_realtime_ns =
                    std::max(comm.created_realtime_ns, host.realtime_ns(instance.begin_ns));
            comm.is_incomplete = comm.is_incomplete || is_incomplete(instance);
            all_ended = all_ended && instance.ended;
            if (instance.ended)
                comm.ended_realtime_ns =
                    std::max(comm.ended_realtime_ns, host.realtime_ns(instance.end_ns));
        }
        if (!all_ended)
            comm.ended_realtime_ns = 0;
        nccl_.communicators.push_back(std::move(comm));
    }

    // What it gave to a proxy may not be here.
    [[nodiscard]] bool is_incomplete(const Instance &instance) const {
        if (instance.operations_rung == Rung::Process)
            return true;
        const auto &loss = model_.sessions[instance.session].loss;
        return std::any_of(loss.begin(), loss.end(), [](const auto &entry) {
            const std::uint32_t loss_class = entry.first.first;
            return entry.second != 0 &&
                   (loss_class == CW_LOSS_RECORD_WRITE || loss_class == CW_LOSS_PROBE_MISSED ||
                    (loss_class >= CW_LOSS_NCCL_COMM && loss_class <= CW_LOSS_NCCL_FAULT));
        });
    }

    void order_communicators() {
        const auto begin_ns = [&](const Communicator &comm) {
            std::uint64_t first_ns = UINT64_MAX;
            for (const Index index : comm.instances)
                first_ns = std::min(first_ns, clock_.time_ns(nccl_.instances[index].host,
                                                             nccl_.instances[index].begin_ns));
            return first_ns;
        };
        std::vector<std::pair<std::uint64_t, Index>> order;
        for (Index index = 0; index < nccl_.communicators.size(); ++index)
            order.emplace_back(begin_ns(nccl_.communicators[index]), index);
        std::sort(order.begin(), order.end());
        std::vector<Communicator> ordered;
        for (const auto &[time_ns, index] : order) {
            for (const Index instance : nccl_.communicators[index].instances)
                nccl_.instances[instance].comm = static_cast<Index>(ordered.size());
            ordered.push_back(std::move(nccl_.communicators[index]));
        }
        nccl_.communicators = std::move(ordered);
    }

    void find_parents() {
        for (Communicator &comm : nccl_.communicators)
            for (const Index index : comm.instances)
                if (const Index parent = nccl_.instances[index].parent; parent != NONE)
                    comm.parent = nccl_.instances[parent].comm;
    }

    // Links that are known from the other end: whose they are follows from that, too.
    void give_mirrored_links() {
        for (Link &link : nccl_.links) {
            if (!link.is_mirrored || link.qps.empty())
                continue;
            const Index peer = model_.qps[link.qps.front()].peer;
            if (peer == NONE || nccl_.qps[peer].link == NONE)
                continue;
            for (const Index other : nccl_.links[nccl_.qps[peer].link].instances) {
                const Communicator &comm = nccl_.communicators[nccl_.instances[other].comm];
                for (const Index index : comm.instances) {
                    const Instance &instance = nccl_.instances[index];
                    if (instance.session == link.session && instance.record.tgid == link.tgid &&
                        instance.record.rank == link.rank)
                        link.instances.push_back(index);
                }
            }
        }
    }

    Model &model_;
    Identity &nccl_;
    CommonClock clock_;
    std::vector<Index> leader_;
};

} // namespace

void join_communicators(Model &model) {
    Joiner(model).run();
}

} // namespace collwire::identity
