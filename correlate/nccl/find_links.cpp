// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "collwire/nccl_connection_records.h"
#include "collwire/qp_records.h"
#include "collwire/socket_records.h"
#include "correlate/nccl/by_lineage.h"
#include "correlate/nccl/plugin_links.h"
#include "correlate/nccl/plugin_owners.h"
#include "correlate/nccl/resolve.h"

namespace collwire::nccl {

using model::Model;
using model::Qp;

namespace {

// Numbers are reused often; that must not make it slow.
constexpr std::size_t MAX_LOOKED_AT = 256;
// Communicators that share a flow.
constexpr std::size_t MAX_INSTANCES = 64;
// Queue pairs or sockets of a flow: far more than NCCL gives a connection.
constexpr std::size_t MAX_ENDPOINTS = 512;

class LinkFinder {
public:
    LinkFinder(Model &model, const topology::Topology *topology)
        : model_(model), nccl_(model.nccl), topology_(topology) {}

    void run() {
        nccl_.qps.assign(model_.qps.size(), {});
        nccl_.sockets.assign(nccl_.gathered.sockets.size(), {});
        find_processes();
        index_endpoints();
        find_owners();
        for (Index index = 0; index < nccl_.gathered.connections.size(); ++index)
            if (!model_.sessions[nccl_.gathered.connections[index].session].excluded)
                add(index);
        give_plugins_other_ends(model_);
        assume_links(model_);
        give_roles();
        find_tiers_of_sockets();
        mirror();
        give_other_roles();
    }

private:
    void find_processes() {
        for (const NcclProcess &process : nccl_.gathered.processes)
            processes_.insert({process.session, process.tgid});
        for (const Instance &instance : nccl_.instances)
            processes_.insert({instance.session, instance.record.tgid});
        for (const GatheredConnection &connection : nccl_.gathered.connections)
            processes_.insert({connection.session, connection.head.tgid});
    }

    void index_endpoints() {
        for (Index index = 0; index < model_.qps.size(); ++index) {
            const Qp &qp = model_.qps[index];
            nccl_.qps[index].is_of_nccl = processes_.contains({qp.session, qp.tgid});
            qps_[AddressKey{qp.key.qpn, qp.session, qp.tgid}].push_back(index);
        }
        for (Index index = 0; index < nccl_.gathered.sockets.size(); ++index) {
            const Socket &socket = nccl_.gathered.sockets[index];
            sockets_[AddressKey{socket.last.inode, socket.session, socket.tgid}].push_back(index);
        }
    }

    // Pointers lead from one plugin connection to other connections' queue pairs as well.
    void find_owners() {
        for (const GatheredConnection &connection : nccl_.gathered.connections)
            if (is_found(connection.head) && !model_.sessions[connection.session].excluded)
                for (const cw_nccl_endpoint &endpoint : connection.endpoints)
                    if (const Index qp = find_qp(connection, endpoint); qp != NONE)
                        owners_.add(qp, connection.head.net_comm, endpoint.depth);
    }

    // NONE: not found, or ambiguous.
    Index find_qp(const GatheredConnection &connection, const cw_nccl_endpoint &endpoint) const {
        const std::uint64_t time_ns = connection.endpoints_ns();
        const auto found = qps_.find({endpoint.number, connection.session, connection.head.tgid});
        if (found == qps_.end())
            return NONE;
        Index best = NONE;
        bool best_by_address = false;
        bool is_ambiguous = false;
        const std::vector<Index> &all = found->second;
        for (std::size_t i = 0; i < std::min(all.size(), MAX_LOOKED_AT); ++i) {
            const Qp &qp = model_.qps[all[i]];
            const bool lived = (qp.key.generation_ns <= time_ns || qp.has(CW_QP_PREEXISTING)) &&
                               (qp.destroyed_ns == 0 || qp.destroyed_ns >= time_ns);
            const bool has_address = qp.user_handle != 0 && endpoint.address != 0;
            if (!lived || (has_address && qp.user_handle != endpoint.address))
                continue;
            if (best != NONE && best_by_address && !has_address)
                continue;
            if (best != NONE && best_by_address == has_address) {
                // Of one device the newer one.
                is_ambiguous = is_ambiguous || model_.qps[best].device != qp.device;
                if (qp.key.generation_ns < model_.qps[best].key.generation_ns)
                    continue;
            } else {
                is_ambiguous = false;
            }
            best = all[i];
            best_by_address = has_address;
        }
        return is_ambiguous ? NONE : best;
    }

    // Never by descriptor: it is reused right after a close. NONE: not found, or ambiguous.
    Index find_socket(const GatheredConnection &connection, std::uint64_t inode) const {
        const std::uint64_t time_ns = connection.head.header.time_ns;
        const auto found = sockets_.find({inode, connection.session, connection.head.tgid});
        if (inode == 0 || found == sockets_.end())
            return NONE;
        Index only = NONE;
        const std::vector<Index> &all = found->second;
        for (std::size_t i = 0; i < std::min(all.size(), MAX_LOOKED_AT); ++i) {
            const Socket &socket = nccl_.gathered.sockets[all[i]];
            if (socket.last.header.time_ns < time_ns)
                continue;
            if (only != NONE)
                return NONE;
            only = all[i];
        }
        return only;
    }

    // The flow of these endpoints; connections without a flow join it.
    Index link_of(const GatheredConnection &connection, const std::vector<Index> &endpoints,
                  bool are_sockets) {
        std::unordered_map<Index, Index> &known = are_sockets ? link_of_socket_ : link_of_qp_;
        for (const Index endpoint : endpoints)
            if (const auto found = known.find(endpoint); found != known.end())
                return found->second;
        const AddressKey net_comm{connection.head.net_comm, connection.session,
                                  connection.head.tgid};
        if (endpoints.empty() && connection.head.net_comm != 0)
            if (const auto found = link_of_net_comm_.find(net_comm);
                found != link_of_net_comm_.end())
                return found->second;
        const auto index = static_cast<Index>(nccl_.links.size());
        Link link;
        link.session = connection.session;
        link.tgid = connection.head.tgid;
        link.transport = connection.head.transport;
        link.rank = connection.head.rank;
        link.peer = connection.head.peer;
        if (link.transport == CW_NCCL_TRANSPORT_PLUGIN)
            link.rung = Rung::Inferred; // its behaviour is not known
        link.begin_ns = connection.head.header.time_ns;
        nccl_.links.push_back(std::move(link));
        if (endpoints.empty())
            link_of_net_comm_.try_emplace(net_comm, index);
        return index;
    }

    void add(Index index) {
        const GatheredConnection &connection = nccl_.gathered.connections[index];
        const cw_nccl_connection &head = connection.head;
        if (head.transport == CW_NCCL_TRANSPORT_LOCAL)
            return;
        const bool are_sockets = head.transport == CW_NCCL_TRANSPORT_SOCKET;
        std::vector<Index> endpoints;
        bool has_control = false;
        bool is_cut_short = connection.endpoints.size() < head.n_endpoints;
        for (std::size_t i = 0; i < connection.endpoints.size(); ++i) {
            const cw_nccl_endpoint &endpoint = connection.endpoints[i];
            const std::uint64_t inode =
                i < connection.socket_inodes.size() ? connection.socket_inodes[i] : 0;
            const Index found =
                are_sockets ? find_socket(connection, inode) : find_qp(connection, endpoint);
            if (is_found(head)) {
                // A queue pair connected with itself carries no data: give_other_roles.
                if (owners_.is_of(found, head.net_comm) && model_.qps[found].peer != found)
                    endpoints.push_back(found);
                continue;
            }
            if (found == NONE) {
                is_cut_short = is_cut_short || endpoint.role != CW_NCCL_ROLE_FLUSH;
                continue;
            }
            if (!are_sockets && endpoint.role == CW_NCCL_ROLE_FLUSH) {
                nccl_.qps[found].role = Role::Flush;
                nccl_.qps[found].rung = Rung::Exact;
                continue;
            }
            has_control = has_control || endpoint.role == CW_NCCL_ROLE_CONTROL;
            if (are_sockets)
                nccl_.sockets[found].role = static_cast<std::uint16_t>(endpoint.role);
            endpoints.push_back(found);
        }
        const Index link_index = link_of(connection, endpoints, are_sockets);
        Link &link = nccl_.links[link_index];
        link.flags |= head.flags;
        link.connections.push_back(index);
        link.has_size_headers = link.has_size_headers || has_control;
        link.is_cut_short = link.is_cut_short || is_cut_short;
        if (link.channels.size() < MAX_LOOKED_AT &&
            std::find(link.channels.begin(), link.channels.end(), head.channel) ==
                link.channels.end())
            link.channels.push_back(head.channel);
        std::vector<Index> &of_link = are_sockets ? link.sockets : link.qps;
        for (const Index endpoint : endpoints) {
            auto &link_of_endpoint = are_sockets ? link_of_socket_ : link_of_qp_;
            if (link_of_endpoint.contains(endpoint))
                continue;
            if (of_link.size() == MAX_ENDPOINTS) {
                link.is_cut_short = true;
                break;
            }
            link_of_endpoint.emplace(endpoint, link_index);
            of_link.push_back(endpoint);
            if (are_sockets)
                nccl_.sockets[endpoint].link = link_index;
        }
        if (head.comm != 0) {
            const Index instance =
                instance_at(nccl_, connection.session, head.tgid, head.comm, head.header.time_ns);
            if (instance != NONE && link.instances.size() < MAX_INSTANCES &&
                std::find(link.instances.begin(), link.instances.end(), instance) ==
                    link.instances.end())
                link.instances.push_back(instance);
        }
    }

    void give_roles() {
        for (Index index = 0; index < nccl_.links.size(); ++index)
            for (const Index qp : nccl_.links[index].qps)
                nccl_.qps[qp] = {nccl_.links[index].is_send() ? Role::Data : Role::ClearToSend,
                                 nccl_.links[index].rung,
                                 index,
                                 true,
                                 {},
                                 {}};
    }

    // Traffic with the same address at both ends, or an address of the same host, never leaves the
    // host.
    void find_tiers_of_sockets() {
        std::set<std::pair<Index, model::Gid>> own;
        const auto address = [](const __u8(&from)[16]) {
            model::Gid gid{};
            std::copy_n(from, gid.size(), gid.begin());
            return gid;
        };
        const auto host_of = [&](Index session) { return model_.sessions[session].host; };
        for (const Socket &socket : nccl_.gathered.sockets)
            own.insert({host_of(socket.session), address(socket.last.local_address)});
        for (Link &link : nccl_.links) {
            if (link.sockets.empty())
                continue;
            const cw_tcp_socket &socket = nccl_.gathered.sockets[link.sockets.front()].last;
            const model::Gid local = address(socket.local_address);
            const model::Gid remote = address(socket.remote_address);
            if (local == remote || own.contains({host_of(link.session), remote}))
                link.tiers = {{topology::Tier::Self, 0}};
            else
                link.tiers = {{tier_between(local, remote), 0}};
            for (const Index index : link.sockets)
                nccl_.sockets[index].tier = link.tiers.front().first;
        }
    }

    // If the topology has ports with these addresses.
    [[nodiscard]] topology::Tier tier_between(const model::Gid &local,
                                              const model::Gid &remote) const {
        if (topology_ == nullptr)
            return topology::Tier::Unknown;
        topology::Endpoint near;
        topology::Endpoint far;
        near.gid = local;
        far.gid = remote;
        const auto near_port = topology_->find_remote(near);
        const auto far_port = topology_->find_remote(far);
        return near_port && far_port
                   ? topology_->classify(*near_port, *far_port, topology::SameHost::Self)
                   : topology::Tier::Unknown;
    }

    // Queue pairs without a connection whose other end has one.
    void mirror() {
        std::map<std::pair<Index, std::uint32_t>, Index> mirrored; // flow of the other end, process
        for (Index index = 0; index < model_.qps.size(); ++index) {
            const Qp &qp = model_.qps[index];
            QpIdentity &identity = nccl_.qps[index];
            if (identity.role != Role::None || qp.peer == NONE || qp.peer == index ||
                nccl_.qps[qp.peer].link == NONE)
                continue;
            const Index other_index = nccl_.qps[qp.peer].link;
            if (nccl_.links[other_index].is_mirrored)
                continue;
            const auto [found, is_new] = mirrored.try_emplace(
                {other_index, qp.tgid}, static_cast<Index>(nccl_.links.size()));
            if (is_new) {
                const Link &other = nccl_.links[other_index];
                Link link;
                link.session = qp.session;
                link.tgid = qp.tgid;
                link.transport = other.transport;
                link.flags = (other.flags & CW_NCCL_CONNECTION_SHARED) |
                             (other.is_send() ? 0U : std::uint32_t{CW_NCCL_CONNECTION_SEND});
                link.rank = other.peer;
                link.peer = other.rank;
                link.channels = other.channels;
                link.rung = Rung::Inferred;
                link.is_mirrored = true;
                link.is_assumed = other.is_assumed;
                link.begin_ns = qp.key.generation_ns;
                nccl_.links.push_back(std::move(link));
            }
            Link &link = nccl_.links[found->second];
            if (link.qps.size() == MAX_ENDPOINTS) {
                link.is_cut_short = true;
                continue;
            }
            link.qps.push_back(index);
            identity = {link.is_send() ? Role::Data : Role::ClearToSend,
                        Rung::Inferred,
                        found->second,
                        true,
                        {},
                        {}};
        }
    }

    // NCCL's flush connects a queue pair with itself.
    void give_other_roles() {
        for (Index index = 0; index < model_.qps.size(); ++index) {
            QpIdentity &identity = nccl_.qps[index];
            const Qp &qp = model_.qps[index];
            if (identity.role != Role::None || !identity.is_of_nccl || !qp.is_connected_type())
                continue;
            identity.role = qp.peer == index ? Role::Flush : Role::Other;
            if (identity.role == Role::Flush)
                identity.rung = Rung::Inferred;
        }
    }

    Model &model_;
    NcclFacts &nccl_;
    const topology::Topology *topology_;
    std::set<std::pair<Index, std::uint32_t>> processes_; // session, process
    ByAddress<std::vector<Index>> qps_;                   // by number
    ByAddress<std::vector<Index>> sockets_;               // by inode
    std::unordered_map<Index, Index> link_of_qp_, link_of_socket_;
    ByAddress<Index> link_of_net_comm_;
    PluginOwners owners_;
};

} // namespace

void find_links(Model &model, const topology::Topology *topology) {
    LinkFinder(model, topology).run();
}

} // namespace collwire::nccl
