// SPDX-License-Identifier: Apache-2.0
// Bytes of NCCL TCP sockets in the recordings: destination and interface.
#include <algorithm>
#include <map>
#include <tuple>

#include "collwire/socket_records.h"
#include "correlate/model/more_sums.h"
#include "correlate/nccl/link_meter.h"
#include "correlate/nccl/resolve.h"

namespace collwire::nccl {

using model::add_known;
using model::Gid;
using model::Model;
using model::subtract_or_zero;

namespace {

// For one pair of addresses and ports.
constexpr std::size_t MAX_LOOKED_AT = 64;

Gid address_of(const __u8 (&from)[16]) {
    Gid gid{};
    std::copy_n(from, gid.size(), gid.begin());
    return gid;
}

class SocketAccountant {
public:
    explicit SocketAccountant(Model &model) : model_(model), nccl_(model.nccl), sums_(model) {}

    void run() {
        index();
        for (Index index = 0; index < nccl_.sockets.size(); ++index) {
            const Socket &socket = nccl_.gathered.sockets[index];
            if (model_.sessions[socket.session].excluded)
                continue;
            SocketIdentity &identity = nccl_.sockets[index];
            find_ends(socket, identity);
            measure(socket, identity);
            add_to_sums(socket, identity);
        }
    }

private:
    using Ends = std::tuple<Gid, std::uint16_t, Gid, std::uint16_t>;

    [[nodiscard]] Index host_of(const Socket &socket) const {
        return model_.sessions[socket.session].host;
    }

    // Duplicate keys are dropped.
    template <typename Map, typename Key>
    static void add_only(Map &map, const Key &key, Index value) {
        const auto [found, is_new] = map.try_emplace(key, value);
        if (!is_new && found->second != value)
            found->second = NONE;
    }
    template <typename Map, typename Key> static Index only_in(const Map &map, const Key &key) {
        const auto found = map.find(key);
        return found == map.end() ? NONE : found->second;
    }

    void index() {
        for (Index index = 0; index < nccl_.gathered.sockets.size(); ++index) {
            const Socket &socket = nccl_.gathered.sockets[index];
            if (model_.sessions[socket.session].excluded)
                continue;
            const Gid local = address_of(socket.last.local_address);
            sockets_[{local, socket.last.local_port, address_of(socket.last.remote_address),
                      socket.last.remote_port}]
                .push_back(index);
            add_only(hosts_, local, host_of(socket));
        }
        for (Index index = 0; index < model_.ports.size(); ++index) {
            const model::Port &port = model_.ports[index];
            const Index host = model_.devices[port.device].host;
            for (const Gid &gid : port.gids) {
                add_only(hosts_, gid, host);
                // Several devices may share one interface.
                const auto [found, is_new] = ports_.try_emplace({host, gid}, index);
                if (!is_new && found->second != NONE &&
                    model_.ports[found->second].netdev != port.netdev)
                    found->second = NONE;
            }
        }
    }

    // How long both existed at the same time. 0: never.
    [[nodiscard]] std::uint64_t shared_ns(const Socket &a, const Socket &b) const {
        const auto at = [&](const Socket &socket, const cw_tcp_socket &record) {
            return model_.hosts[host_of(socket)].realtime_ns(record.header.time_ns);
        };
        const std::uint64_t end_ns = std::min(at(a, a.last), at(b, b.last));
        const std::uint64_t begin_ns = std::max(at(a, a.first), at(b, b.first));
        return end_ns < begin_ns ? 0 : end_ns - begin_ns + 1;
    }

    // The one socket with these ends. A process's socket may be in several recordings: takes the
    // one with the longest common time with `of`.
    [[nodiscard]] Index socket_with(const Ends &ends, const Socket &of) const {
        const auto found = sockets_.find(ends);
        if (found == sockets_.end() || found->second.size() > MAX_LOOKED_AT)
            return NONE;
        const std::vector<Index> &all = found->second;
        if (all.size() == 1)
            return all.front();
        const Socket &first = nccl_.gathered.sockets[all.front()];
        Index best = NONE;
        std::uint64_t best_ns = 0;
        for (const Index index : all) {
            const Socket &socket = nccl_.gathered.sockets[index];
            if (host_of(socket) != host_of(first) || socket.tgid != first.tgid)
                return NONE;
            if (const std::uint64_t time_ns = shared_ns(socket, of); time_ns > best_ns) {
                best = index;
                best_ns = time_ns;
            }
        }
        return best;
    }

    void find_ends(const Socket &socket, SocketIdentity &identity) const {
        const cw_tcp_socket &last = socket.last;
        const Gid local = address_of(last.local_address);
        const Gid remote = address_of(last.remote_address);
        identity.port = only_in(ports_, std::pair(host_of(socket), local));
        identity.peer = socket_with({remote, last.remote_port, local, last.local_port}, socket);
        const Index host = identity.peer != NONE ? host_of(nccl_.gathered.sockets[identity.peer])
                           : identity.tier == topology::Tier::Self ? host_of(socket)
                                                                   : only_in(hosts_, remote);
        if (host != NONE)
            identity.remote_host = model_.hosts[host].name;
    }

    void measure(const Socket &socket, SocketIdentity &identity) const {
        const bool is_late_link =
            identity.link != NONE && is_late(model_, nccl_.links[identity.link]);
        cw_tcp_socket before{};
        if (is_late_link || socket.is_counted_from_first) {
            before = socket.first;
            identity.counted_from_ns = socket.first.header.time_ns;
        }
        const cw_tcp_socket &last = socket.last;
        identity.is_cut_short =
            (last.flags & (CW_TCP_SOCKET_GONE | CW_TCP_SOCKET_FINAL)) == CW_TCP_SOCKET_GONE;
        identity.tx_bytes = subtract_or_zero(last.acked_bytes, before.acked_bytes);
        identity.rx_bytes = subtract_or_zero(last.received_bytes, before.received_bytes);
        if (has_sent_bytes(last))
            identity.retransmitted_bytes =
                subtract_or_zero(last.retransmitted_bytes, before.retransmitted_bytes);
    }

    // Linux before 4.19 has no counters of sent bytes.
    static bool has_sent_bytes(const cw_tcp_socket &socket) {
        return socket.sent_bytes != 0 || socket.acked_bytes == 0;
    }

    static void add(model::TcpSums &sums, const SocketIdentity &identity) {
        ++sums.sockets;
        add_known(sums.tx_payload_bytes, identity.tx_bytes);
        add_known(sums.rx_payload_bytes, identity.rx_bytes);
        add_known(sums.retransmitted_bytes, identity.retransmitted_bytes);
    }

    void add_to_sums(const Socket &socket, const SocketIdentity &identity) {
        add(model_.total.tcp, identity);
        add(model_.tiers[model::index_of(identity.tier)].tcp, identity);
        add(sums_.process_of(host_of(socket), socket.tgid).all.tcp, identity);
        const std::string destination =
            identity.remote_host.empty()
                ? model::short_gid_text(address_of(socket.last.remote_address))
                : identity.remote_host;
        add(sums_.pair_of(host_of(socket), destination, !identity.remote_host.empty()).all.tcp,
            identity);
        if (identity.port == NONE || identity.tier == topology::Tier::Self)
            return;
        model::PortBytes &bytes = model_.ports[identity.port].bytes;
        Known sent = identity.tx_bytes;
        add_known(sent, identity.retransmitted_bytes);
        add_known(bytes.tcp_tx_bytes, sent);
        add_known(bytes.tcp_rx_bytes, identity.rx_bytes);
    }

    Model &model_;
    NcclFacts &nccl_;
    model::MoreSums sums_;
    std::map<Ends, std::vector<Index>> sockets_;
    std::map<Gid, Index> hosts_;                   // by address
    std::map<std::pair<Index, Gid>, Index> ports_; // by host and address
};

} // namespace

void account_sockets(Model &model) {
    SocketAccountant(model).run();
}

} // namespace collwire::nccl
