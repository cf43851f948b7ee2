// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "collwire/loss_records.h"
#include "collwire/nccl_comm_records.h"
#include "collwire/socket_records.h"
#include "correlate/capture/reader.h"
#include "correlate/nccl/comm_name.h"
#include "correlate/nccl/common_clock.h"
#include "correlate/nccl/describe.h"
#include "correlate/nccl/join_lifetimes.h"
#include "correlate/nccl/resolve.h"

namespace collwire::nccl {

using model::Model;

namespace {

constexpr std::uint32_t FIRST_THAT_GROWS = 22900; // ncclCommGrow

class Joiner {
public:
    explicit Joiner(Model &model) : model_(model), nccl_(model.nccl), clock_(model) {}

    void run() {
        leader_.resize(nccl_.instances.size());
        std::iota(leader_.begin(), leader_.end(), Index{0});
        ranks_.resize(nccl_.instances.size());
        for (Index index = 0; index < nccl_.instances.size(); ++index)
            ranks_[index].emplace(nccl_.instances[index].record.rank, index);
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
    // Two instances of one rank in a communicator were recorded one after the other.
    void unite(Index a, Index b) {
        a = leader_of(a);
        b = leader_of(b);
        if (a == b)
            return;
        if (ranks_[a].size() < ranks_[b].size())
            std::swap(a, b);
        for (const auto &[rank, instance] : ranks_[b])
            if (const auto found = ranks_[a].find(rank);
                found != ranks_[a].end() &&
                !is_same_rank(nccl_.instances[found->second], nccl_.instances[instance]))
                return;
        ranks_[a].merge(ranks_[b]);
        ranks_[b].clear();
        leader_[b] = a;
    }

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

    // NONE: not found, or several.
    [[nodiscard]] Index only_partner(Index of, const Link &link) const {
        Index only = NONE;
        for (const Index other : link.instances) {
            if (!can_be_one(nccl_.instances[of], nccl_.instances[other]))
                continue;
            if (only != NONE)
                return NONE;
            only = other;
        }
        return only;
    }

    // The two ends of a connection: instances that can only belong to each other.
    void join_ends(const Link &a_link, const Link &b_link) {
        for (const Index a : a_link.instances)
            if (const Index b = only_partner(a, b_link); b != NONE && only_partner(b, a_link) == a)
                unite(a, b);
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
        std::map<Index, LivingGroup> by_leader;
        for (Index index = 0; index < nccl_.instances.size(); ++index)
            by_leader[leader_of(index)].take(group_of(index));
        std::map<std::pair<std::uint64_t, std::int32_t>, std::vector<LivingGroup>> by_hash;
        for (auto &[leader, group] : by_leader) {
            const cw_nccl_comm &record = nccl_.instances[leader].record;
            by_hash[{record.comm_hash, record.n_ranks}].push_back(std::move(group));
        }
        for (auto &[hash, groups] : by_hash)
            for (LivingGroup &group : join_lifetimes(std::move(groups)))
                add_communicator(group);
    }

    [[nodiscard]] LivingGroup group_of(Index index) const {
        const Instance &instance = nccl_.instances[index];
        const model::Session &session = model_.sessions[instance.session];
        const auto time_ns = [&](std::uint64_t monotonic_ns) {
            return clock_.time_ns(instance.host, monotonic_ns);
        };
        LivingGroup group;
        group.instances = {index};
        group.ranks = {instance.record.rank};
        group.begin_ns = group.latest_begin_ns = time_ns(instance.begin_ns);
        if (instance.end_ns != 0)
            group.first_end_ns = time_ns(instance.end_ns);
        if (instance.created)
            group.created_ns = group.begin_ns;
        const bool may_miss =
            session.loss.end() !=
            std::find_if(session.loss.begin(), session.loss.end(), [](const auto &entry) {
                return entry.second != 0 && (entry.first.first == CW_LOSS_NCCL_COMM ||
                                             entry.first.first == CW_LOSS_RECORD_WRITE ||
                                             entry.first.first == CW_LOSS_RING_UNREAD);
            });
        group.watched_from_ns = may_miss ? UINT64_MAX : time_ns(session.begin_ns);
        group.watched_until_ns = time_ns(session.end_ns);
        return group;
    }

    void add_communicator(LivingGroup &group) {
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
        std::vector<ReadName> names;
        for (const Index index : comm.instances) {
            const Instance &instance = nccl_.instances[index];
            const model::Host &host = model_.hosts[instance.host];
            comm.n_nodes = std::max(comm.n_nodes, instance.record.n_nodes);
            names.push_back(
                {std::string(capture::text_of(instance.record.name)), instance.created});
            if (instance.created)
                comm.created_realtime_ns =
                    std::max(comm.created_realtime_ns, host.realtime_ns(instance.begin_ns));
            all_ended = all_ended && instance.ended;
            if (instance.ended)
                comm.ended_realtime_ns =
                    std::max(comm.ended_realtime_ns, host.realtime_ns(instance.end_ns));
        }
        comm.name = agreed_name(names);
        if (!all_ended)
            comm.ended_realtime_ns = 0;
        nccl_.communicators.push_back(std::move(comm));
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
        for (Communicator &comm : nccl_.communicators) {
            std::set<std::int32_t> without; // ranks
            bool has_one = false;
            bool may_be_grown = false;
            for (const Index index : comm.instances) {
                const Instance &instance = nccl_.instances[index];
                if (instance.parent != NONE)
                    comm.parent = nccl_.instances[instance.parent].comm;
                has_one = has_one || instance.record.parent != 0 || instance.is_shared();
                may_be_grown = may_be_grown || instance.version >= FIRST_THAT_GROWS;
                if (instance.created)
                    without.insert(instance.record.rank);
            }
            // The parent is known from a creation only. Ranks that join a growing communicator have
            // no parent, except for those that were there before.
            const bool has_none =
                may_be_grown ? without.size() >= static_cast<std::size_t>(std::max(comm.n_ranks, 1))
                             : !without.empty();
            comm.parent_known = comm.parent != NONE || (has_none && !has_one);
        }
    }

    // The owner of flows known from the other end follows from that end as well.
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
    NcclFacts &nccl_;
    CommonClock clock_;
    std::vector<Index> leader_;
    std::vector<std::map<std::int32_t, Index>> ranks_; // by leader: an instance of each rank
};

} // namespace

void join_communicators(Model &model) {
    Joiner(model).run();
}

} // namespace collwire::nccl
