// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>
#include <string_view>
#include <tuple>
#include <vector>

#include "collwire/qp_records.h"
#include "correlate/model/join.h"

namespace collwire::model {

namespace {

using topology::SameHost;
using topology::Tier;
using topology::Topology;

topology::Endpoint by_gid(const Gid &gid) {
    topology::Endpoint endpoint;
    endpoint.gid = gid;
    return endpoint;
}

// Hosts that share their name with another machine. Two boots of one machine share a name too: they
// have one machine id or, without ids, never ran at the same time.
std::vector<bool> hosts_of_shared_names(const Model &model) {
    struct Seen {
        Index host;
        std::uint64_t begin_ns; // realtime, of all its recordings
        std::uint64_t end_ns;
    };
    std::vector<Seen> seen(model.hosts.size());
    for (Index index = 0; index < seen.size(); ++index)
        seen[index] = {index, UINT64_MAX, 0};
    for (const Session &session : model.sessions) {
        const Host &host = model.hosts[session.host];
        Seen &of = seen[session.host];
        of.begin_ns = std::min(of.begin_ns, host.realtime_ns(session.begin_ns));
        of.end_ns = std::max(of.end_ns, host.realtime_ns(session.end_ns));
    }
    std::sort(seen.begin(), seen.end(), [&](const Seen &a, const Seen &b) {
        return std::tie(model.hosts[a.host].hostname, a.begin_ns) <
               std::tie(model.hosts[b.host].hostname, b.begin_ns);
    });
    std::vector<bool> shared(model.hosts.size());
    for (std::size_t begin = 0; begin < seen.size();) {
        std::set<std::string_view> machines;
        std::uint64_t latest_end_ns = 0;
        bool overlap = false;
        bool all_known = true;
        std::size_t end = begin;
        for (; end < seen.size() &&
               model.hosts[seen[end].host].hostname == model.hosts[seen[begin].host].hostname;
             ++end) {
            const std::string &machine = model.hosts[seen[end].host].machine_id;
            all_known = all_known && !machine.empty();
            machines.insert(machine);
            overlap = overlap || (end != begin && seen[end].begin_ns < latest_end_ns);
            latest_end_ns = std::max(latest_end_ns, seen[end].end_ns);
        }
        const bool is_shared = all_known ? machines.size() > 1 : overlap;
        for (; begin < end; ++begin)
            shared[seen[begin].host] = is_shared;
    }
    return shared;
}

void find_ports(Model &model, const Topology &topology, const std::vector<bool> &is_shared) {
    for (Port &port : model.ports) {
        const Device &device = model.devices[port.device];
        const std::string &hostname = model.hosts[device.host].hostname;
        if (!is_shared[device.host]) {
            port.topology_port = topology.find_local(hostname, device.name, port.number);
            if (!port.topology_port && !port.netdev.empty())
                port.topology_port = topology.find_netdev(hostname, port.netdev);
        }
        for (std::size_t i = 0; !port.topology_port && i < port.gids.size(); ++i)
            port.topology_port = topology.find_remote(by_gid(port.gids[i]));
        if (!port.topology_port)
            continue;
        const topology::Port listed = topology.port(*port.topology_port);
        port.switch_id = listed.switch_id;
        port.switch_port = listed.switch_port;
        port.rail = listed.rail;
    }
}

struct Remote {
    Tier tier = Tier::Unknown;
    std::string host;
};

class TierFinder {
public:
    TierFinder(const Model &model, const Topology *topology, const std::vector<bool> &is_shared)
        : model_(model), topology_(topology), is_shared_(is_shared) {}

    [[nodiscard]] Remote find(const Qp &qp, Index remote_port,
                              const topology::Endpoint &endpoint) const {
        Remote found;
        const bool software = qp.device != NONE && model_.devices[qp.device].is_software();
        std::optional<topology::PortRef> far;
        if (remote_port != NONE) {
            const Device &remote = model_.devices[model_.ports[remote_port].device];
            found.host = model_.hosts[remote.host].name;
            // Two boots of one machine never exchange data, but two recordings of one boot are one
            // host here.
            if (remote_port == qp.port || (remote.host == qp.host && software)) {
                found.tier = Tier::Self;
                return found;
            }
            far = model_.ports[remote_port].topology_port;
        }
        if (endpoint.gid && qp.has(CW_QP_SGID) && *endpoint.gid == qp.sgid()) {
            found.tier = Tier::Self;
            found.host = model_.hosts[qp.host].name;
            return found;
        }
        if (topology_ == nullptr)
            return found;
        if (!far)
            far = topology_->find_remote(endpoint);
        if (!far)
            return found;
        if (found.host.empty())
            found.host = topology_->port(*far).host;
        if (qp.port == NONE || !model_.ports[qp.port].topology_port)
            return found;
        found.tier = topology_->classify(*model_.ports[qp.port].topology_port, *far,
                                         software && !is_shared_[qp.host] ? SameHost::Self
                                                                          : SameHost::ByFabric);
        return found;
    }

private:
    const Model &model_;
    const Topology *topology_;
    const std::vector<bool> &is_shared_; // host names, by host
};

} // namespace

void find_tiers(Model &model, const Topology *topology) {
    const std::vector<bool> is_shared = hosts_of_shared_names(model);
    if (topology != nullptr) {
        model.has_topology = true;
        model.topology_source = topology->source();
        find_ports(model, *topology, is_shared);
    }
    const TierFinder finder(model, topology, is_shared);
    for (Qp &qp : model.qps) {
        for (UdPeer &peer : qp.ud_peers) {
            Remote remote = finder.find(qp, peer.remote_port, by_gid(peer.dgid));
            peer.tier = remote.tier;
            peer.remote_host = std::move(remote.host);
            // The highest level that any of its destinations crosses; unknown if any destination's
            // is.
            qp.tier = &peer == &qp.ud_peers.front() ? peer.tier : std::max(qp.tier, peer.tier);
        }
        topology::Endpoint endpoint;
        if (qp.has(CW_QP_ADDRESS)) {
            if (const Gid dgid = qp.dgid(); qp.has(CW_QP_GRH) || !is_zero(dgid))
                endpoint.gid = dgid;
            if (qp.address.dlid != 0 && qp.address.dlid <= UINT16_MAX)
                endpoint.lid = static_cast<std::uint16_t>(qp.address.dlid);
            if (qp.port != NONE)
                endpoint.subnet_prefix = model.ports[qp.port].subnet_prefix;
        }
        if (!qp.is_connected_type() || qp.had_several_peers)
            continue;
        Remote remote = finder.find(qp, qp.remote_port, endpoint);
        qp.tier = remote.tier;
        qp.remote_host = std::move(remote.host);
    }
}

} // namespace collwire::model
