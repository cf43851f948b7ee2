// SPDX-License-Identifier: Apache-2.0
// Finds the port at the other end, by the address in the queue pair or in its peer.
#include <algorithm>
#include <unordered_map>

#include "collwire/qp_records.h"
#include "correlate/model/connection.h"
#include "correlate/model/join.h"

namespace collwire::model {

namespace {

struct NumberKey {
    Index port;
    std::uint32_t qpn;
    friend bool operator==(const NumberKey &, const NumberKey &) = default;
};
struct ConnectionKey {
    Index device;
    std::uint32_t qpn;
    std::uint32_t dest_qpn;
    friend bool operator==(const ConnectionKey &, const ConnectionKey &) = default;
};
struct LidKey {
    std::uint64_t prefix;
    std::uint32_t lid;
    friend bool operator==(const LidKey &, const LidKey &) = default;
};
struct Hash {
    std::size_t operator()(const NumberKey &key) const {
        return mix(std::uint64_t{key.port} << 32U | key.qpn);
    }
    std::size_t operator()(const ConnectionKey &key) const {
        return mix(mix(std::uint64_t{key.device} << 32U | key.qpn) ^ key.dest_qpn);
    }
    std::size_t operator()(const LidKey &key) const { return mix(mix(key.prefix) ^ key.lid); }
};

class RemotePortFinder {
public:
    explicit RemotePortFinder(Model &model) : model_(model) {}

    void run() {
        index_ports();
        for (Qp &qp : model_.qps)
            find_remote_port(qp);
        find_missing_addresses();
    }

private:
    void index_ports();
    void find_remote_port(Qp &qp);
    void find_missing_addresses();
    [[nodiscard]] bool has_end(Index port, const Qp &of) const;
    [[nodiscard]] bool was_recorded(Index port, const Life &life) const;

    Model &model_;
    std::unordered_map<Gid, std::vector<Index>, GidHash> by_gid_;
    std::unordered_map<LidKey, std::vector<Index>, Hash> by_lid_;
    std::unordered_map<ConnectionKey, std::vector<Index>, Hash> by_numbers_;
    std::vector<std::vector<Life>> recordings_; // by host
};

void add_port(std::vector<Index> &ports, Index port) {
    if (ports.size() < MAX_CANDIDATES && std::find(ports.begin(), ports.end(), port) == ports.end())
        ports.push_back(port);
}

void RemotePortFinder::index_ports() {
    for (Index index = 0; index < model_.ports.size(); ++index) {
        const Port &port = model_.ports[index];
        for (const Gid &gid : port.gids)
            add_port(by_gid_[gid], index);
        if (port.lid != 0)
            add_port(by_lid_[{port.subnet_prefix, port.lid}], index);
    }
    for (Index index = 0; index < model_.qps.size(); ++index) {
        const Qp &qp = model_.qps[index];
        if (qp.port != NONE && qp.has(CW_QP_SGID) && !is_zero(qp.sgid()))
            add_port(by_gid_[qp.sgid()], qp.port);
        if (qp.device != NONE && qp.has(CW_QP_DEST))
            by_numbers_[{qp.device, qp.key.qpn, qp.address.dest_qpn}].push_back(index);
    }
    recordings_.resize(model_.hosts.size());
    for (const Session &session : model_.sessions) {
        const Host &host = model_.hosts[session.host];
        recordings_[session.host].push_back(
            {host.rough_realtime_ns(session.begin_ns), host.rough_realtime_ns(session.end_ns)});
    }
}

// Whether the port's host was recorded at that time: rules out the other boot of a host.
bool RemotePortFinder::was_recorded(Index port, const Life &life) const {
    const auto &recordings = recordings_[model_.devices[model_.ports[port].device].host];
    return std::any_of(recordings.begin(), recordings.end(), [&](const Life &recording) {
        return !are_apart(life, recording, SKEW_UNKNOWN_NS);
    });
}

bool RemotePortFinder::has_end(Index port, const Qp &of) const {
    const auto found =
        by_numbers_.find({model_.ports[port].device, of.address.dest_qpn, of.key.qpn});
    if (found == by_numbers_.end())
        return false;
    const Life life = life_of(model_, of);
    std::size_t looked_at = 0;
    for (const Index index : found->second) {
        const Qp &qp = model_.qps[index];
        // With more candidates than this nothing is ruled out.
        if (++looked_at > MAX_LOOKED_AT ||
            ((qp.port == NONE || qp.port == port) && !psns_contradict(of, qp) &&
             !are_apart(life, life_of(model_, qp), SKEW_UNKNOWN_NS)))
            return true;
    }
    return false;
}

// A queue pair that was reset after it had sent, and reconnected: its counts mix both peers.
void find_several_peers(Qp &qp) {
    const auto before = [&](std::uint64_t first_ns) {
        return first_ns != 0 && first_ns < qp.readdressed_ns;
    };
    qp.had_several_peers =
        qp.readdressed_ns != 0 && qp.is_connected_type() &&
        ((qp.wire && (before(qp.wire->last.tx.first_ns) || before(qp.wire->last.rx.first_ns))) ||
         (qp.posts && before(qp.posts->first_ns)));
    if (qp.had_several_peers)
        qp.pairing = Pairing::Ambiguous;
}

void RemotePortFinder::find_remote_port(Qp &qp) {
    for (UdPeer &peer : qp.ud_peers) {
        const auto found = by_gid_.find(peer.dgid);
        if (found == by_gid_.end())
            continue;
        if (found->second.size() == 1) {
            peer.remote_port = found->second.front();
            continue;
        }
        const Life life = life_of(model_, qp);
        const auto was_there = [&](Index port) { return was_recorded(port, life); };
        if (std::count_if(found->second.begin(), found->second.end(), was_there) == 1)
            peer.remote_port = *std::find_if(found->second.begin(), found->second.end(), was_there);
    }
    find_several_peers(qp);
    if (!qp.is_connected_type() || !qp.has(CW_QP_ADDRESS) || qp.had_several_peers)
        return;
    const std::vector<Index> *candidates = nullptr;
    const Gid dgid = qp.dgid();
    if (qp.has(CW_QP_GRH) || !is_zero(dgid)) {
        const auto found = by_gid_.find(dgid);
        candidates = found == by_gid_.end() ? nullptr : &found->second;
    } else if (qp.address.dlid != 0 && qp.port != NONE) {
        const auto found = by_lid_.find({model_.ports[qp.port].subnet_prefix, qp.address.dlid});
        candidates = found == by_lid_.end() ? nullptr : &found->second;
    }
    if (candidates == nullptr)
        return;
    if (candidates->size() == 1) {
        qp.remote_port = candidates->front();
        return;
    }
    // One address on several ports: two boots of one host, or separate networks. The other end
    // decides.
    std::size_t matches = 0;
    for (const Index port : *candidates) {
        if (!has_end(port, qp))
            continue;
        qp.remote_port = port;
        ++matches;
    }
    if (matches > 1) {
        qp.remote_port = NONE;
        qp.pairing = Pairing::Ambiguous;
    }
}

// A queue pair known from netlink only has no address; the other end's address supplies it.
void RemotePortFinder::find_missing_addresses() {
    std::unordered_map<NumberKey, std::vector<Index>, Hash> by_target;
    for (Index index = 0; index < model_.qps.size(); ++index) {
        const Qp &qp = model_.qps[index];
        if (qp.remote_port != NONE && qp.has(CW_QP_DEST)) {
            std::vector<Index> &targets = by_target[{qp.remote_port, qp.address.dest_qpn}];
            if (targets.size() < MAX_CANDIDATES)
                targets.push_back(index);
        }
    }
    for (Qp &qp : model_.qps) {
        if (qp.remote_port != NONE || qp.port == NONE || qp.had_several_peers ||
            !qp.is_connected_type() || !qp.has(CW_QP_DEST) || qp.has(CW_QP_ADDRESS))
            continue;
        const auto found = by_target.find({qp.port, qp.key.qpn});
        if (found == by_target.end())
            continue;
        Index port = NONE;
        bool several = false;
        for (const Index other : found->second) {
            const Qp &peer = model_.qps[other];
            if (peer.key.qpn != qp.address.dest_qpn || peer.port == NONE)
                continue;
            several = several || (port != NONE && port != peer.port);
            port = peer.port;
        }
        if (several)
            qp.pairing = Pairing::Ambiguous;
        else
            qp.remote_port = port;
    }
}

} // namespace

void find_remote_ports(Model &model) {
    RemotePortFinder(model).run();
}

} // namespace collwire::model
