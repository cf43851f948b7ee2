// SPDX-License-Identifier: Apache-2.0
#include "correlate/model/port_counters.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <unordered_map>

#include "collwire/node_records.h"
#include "collwire/port_records.h"

namespace collwire::model {

namespace {

using topology::Tier;

// InfiniBand port data counters cover a packet from the LRH to before the VCRC (InfiniBand
// architecture specification, PortCounters); a frame has the 2 bytes of VCRC as well.
constexpr std::uint64_t VCRC_BYTES = 2;
// An undocumented counter may exclude all headers of a RoCE v2 frame with a VLAN tag and IPv6, and
// the FCS: 18 + 40 + 8 + 12 + 16 + 4 + 4.
constexpr std::uint64_t UNDOCUMENTED_BYTES_A_PACKET = 102;
constexpr double NS_PER_S = 1e9;

// Byte counters of one port in one recording, best source first.
struct Candidate {
    cw_counter_source source;
    std::string_view tx_bytes, rx_bytes, tx_packets, rx_packets;
    std::string_view name;
    bool software_only; // counts everything on the interface, except what hardware sends past the
                        // kernel
};
constexpr std::array<Candidate, 5> CANDIDATES = {{
    {CW_COUNTER_NETDEV, "tx_bytes", "rx_bytes", "tx_packets", "rx_packets", "netdev", true},
    {CW_COUNTER_PORT, "port_xmit_data", "port_rcv_data", "port_xmit_packets", "port_rcv_packets",
     "port_counters", false},
    {CW_COUNTER_HW, "tx_bytes", "rx_bytes", "tx_pkts", "rx_pkts", "hw_counters", false},
    {CW_COUNTER_ETHTOOL, "tx_vport_rdma_unicast_bytes", "rx_vport_rdma_unicast_bytes",
     "tx_vport_rdma_unicast_packets", "rx_vport_rdma_unicast_packets", "ethtool_vport_rdma", false},
    {CW_COUNTER_ETHTOOL, "tx_bytes_phy", "rx_bytes_phy", "tx_packets_phy", "rx_packets_phy",
     "ethtool_phy", false},
}};

// The port of a device, or the queue pair of a port.
struct NumberKey {
    Index of;
    std::uint32_t number;
    friend bool operator==(const NumberKey &, const NumberKey &) = default;
};
struct Hash {
    std::size_t operator()(const NumberKey &key) const {
        return mix(std::uint64_t{key.of} << 32U | key.number);
    }
};

const Counter *find(const std::vector<const Counter *> &counters, cw_counter_source source,
                    std::string_view name) {
    for (const Counter *counter : counters)
        if (counter->source == source && counter->name == name && counter->series.points() >= 2)
            return counter;
    return nullptr;
}

std::uint64_t distance(std::uint64_t a, std::uint64_t b) {
    return a > b ? a - b : b - a;
}

// Bytes that may lie between the readings of the queue pairs and of the counter, at both ends.
// Based on the fastest interval: collectives come in bursts, and an end may lie in one.
std::uint64_t skew_bytes(const CounterSeries &series, const Session &session,
                         double bytes_per_unit) {
    const std::uint64_t qps_begin_ns =
        session.first_wire_sample_ns != 0 && session.first_wire_sample_ns <= series.first().time_ns
            ? session.first_wire_sample_ns
            : session.begin_ns;
    const std::uint64_t begin_ns = distance(series.first().time_ns, qps_begin_ns) +
                                   distance(series.first().time_ns, series.first().begin_ns);
    const std::uint64_t qps_end_ns =
        session.last_wire_sample_ns != 0 ? session.last_wire_sample_ns : session.end_ns;
    const std::uint64_t end_ns = distance(series.last().time_ns, qps_end_ns) +
                                 distance(series.last().time_ns, series.last().begin_ns);
    const double bytes =
        bytes_per_unit * series.peak_rate() * static_cast<double>(begin_ns + end_ns) / NS_PER_S;
    return bytes >= 1e18 ? std::uint64_t{1'000'000'000'000'000'000}
                         : static_cast<std::uint64_t>(std::llround(bytes));
}

struct Converted {
    Known bytes;
    std::uint64_t uncertainty_bytes = 0;
    std::string note;
};

// The counter's growth, converted to whole frames.
Converted convert(const Counter &counter, const Counter *packets, const Port &port,
                  const Session &session) {
    Converted converted;
    const std::uint64_t increase = counter.series.increase();
    const bool infiniband = port.link_layer == CW_LINK_INFINIBAND;
    const auto undocumented = [&](std::uint64_t bytes) {
        converted.bytes = bytes;
        converted.note = "its extent is not documented: headers may or may not be in it";
        if (packets != nullptr)
            converted.uncertainty_bytes =
                multiply_saturating(packets->series.increase(), UNDOCUMENTED_BYTES_A_PACKET);
    };
    double bytes_per_unit = 1;
    switch (counter.unit) {
    case CW_UNIT_LINK_BYTES:
        converted.bytes = increase;
        break;
    case CW_UNIT_OCTETS_4: {
        bytes_per_unit = 4;
        const std::uint64_t bytes = multiply_saturating(increase, 4);
        if (!infiniband) {
            undocumented(bytes);
            break;
        }
        converted.bytes = bytes;
        if (packets != nullptr) {
            converted.bytes =
                add_saturating(bytes, multiply_saturating(packets->series.increase(), VCRC_BYTES));
            converted.note = "octets x 4, LRH to before VCRC, plus 2 bytes of VCRC a packet";
        } else {
            converted.note = "octets x 4, LRH to before VCRC; 2 bytes of VCRC a packet are missing";
        }
        break;
    }
    case CW_UNIT_BYTES:
        undocumented(increase);
        break;
    default:
        converted.note = "its unit is not known";
        return converted;
    }
    converted.uncertainty_bytes = add_saturating(
        converted.uncertainty_bytes, skew_bytes(counter.series, session, bytes_per_unit));
    return converted;
}

class Reconciler {
public:
    explicit Reconciler(Model &model) : model_(model) {}

    void run() {
        counted_by_.resize(model_.ports.size());
        for (Index index = 0; index < model_.sessions.size(); ++index)
            if (!model_.sessions[index].excluded)
                add_counters(index);
        for (Port &port : model_.ports) {
            if (port.bytes.source.empty())
                port.bytes.source = "none";
            port.bytes.explained_tx_bytes = 0;
            port.bytes.explained_rx_bytes = 0;
            port.bytes.self_tx_wire_bytes = 0;
        }
        for (const Qp &qp : model_.qps)
            add_self_datagrams(qp);
        for (const Qp &qp : model_.qps)
            if (qp.port != NONE && is_counted(qp))
                explain(qp, model_.ports[qp.port].bytes);
        for (Index index = 0; index < model_.ports.size(); ++index) {
            PortBytes &bytes = model_.ports[index].bytes;
            const bool none_has_bytes =
                bytes.qps_without_bytes != 0 && bytes.qps_without_bytes == qps_[&bytes];
            if (none_has_bytes || !queue_pairs_watched(index)) {
                bytes.explained_tx_bytes.reset();
                bytes.explained_rx_bytes.reset();
                bytes.self_tx_wire_bytes.reset();
            }
        }
    }

private:
    // The recordings that the port's bytes come from: those with its counter or, if none has it,
    // those of its host.
    [[nodiscard]] bool queue_pairs_watched(Index port) const {
        const auto &counted_by = counted_by_[port];
        const Index host = model_.devices[model_.ports[port].device].host;
        for (Index index = 0; index < model_.sessions.size(); ++index) {
            const Session &session = model_.sessions[index];
            const bool is_of_port = counted_by.empty() ? session.host == host && !session.excluded
                                                       : counted_by.contains(index);
            if (is_of_port && !session.watched_queue_pairs())
                return false;
        }
        return true;
    }

    // A port's counter covers its recordings, so only their queue pairs are compared with it.
    [[nodiscard]] bool is_counted(const Qp &qp) const {
        return counted_by_[qp.port].empty() || counted_by_[qp.port].contains(qp.session);
    }

    void add_counters(Index session_index) {
        const Session &session = model_.sessions[session_index];
        std::unordered_map<NumberKey, std::vector<const Counter *>, Hash> by_port;
        for (const Counter &counter : session.counters)
            by_port[{counter.device, counter.port}].push_back(&counter);
        for (const Index index : ports_of(session)) {
            Port &port = model_.ports[index];
            const auto found = by_port.find({port.device, port.number});
            if (found != by_port.end() && add_port(session, port, found->second))
                counted_by_[index].insert(session_index);
        }
    }

    [[nodiscard]] std::vector<Index> ports_of(const Session &session) {
        if (ports_by_host_.empty())
            for (Index index = 0; index < model_.ports.size(); ++index)
                ports_by_host_[model_.devices[model_.ports[index].device].host].push_back(index);
        return ports_by_host_[session.host];
    }

    // False: it has no byte counter.
    bool add_port(const Session &session, Port &port,
                  const std::vector<const Counter *> &counters) {
        const bool software = model_.devices[port.device].is_software();
        for (const Candidate &candidate : CANDIDATES) {
            if (candidate.software_only != software)
                continue;
            const Counter *tx = find(counters, candidate.source, candidate.tx_bytes);
            const Counter *rx = find(counters, candidate.source, candidate.rx_bytes);
            if (tx == nullptr && rx == nullptr)
                continue;
            PortBytes &bytes = port.bytes;
            std::uint64_t uncertainty_bytes = 0;
            for (const bool is_tx : {true, false}) {
                const Counter *counter = is_tx ? tx : rx;
                if (counter == nullptr)
                    continue;
                const Counter *packets = find(counters, candidate.source,
                                              is_tx ? candidate.tx_packets : candidate.rx_packets);
                const Converted converted = convert(*counter, packets, port, session);
                add_known(is_tx ? bytes.tx_wire_bytes : bytes.rx_wire_bytes, converted.bytes);
                if (!converted.note.empty())
                    bytes.source_note = converted.note;
                bytes.counter_resets += counter->series.resets();
                uncertainty_bytes = std::max(uncertainty_bytes, converted.uncertainty_bytes);
            }
            add_known(bytes.uncertainty_bytes, uncertainty_bytes);
            if (bytes.source.empty())
                bytes.source = candidate.name;
            else if (bytes.source != candidate.name)
                bytes.source = "mixed";
            return true;
        }
        return false;
    }

    // Counted before the first reading of the port counters.
    [[nodiscard]] bool is_before(const Qp &qp, std::uint64_t first_ns) const {
        return qp.bytes.rung == BytesRung::Wire && first_ns != 0 &&
               first_ns <= model_.sessions[qp.session].first_counters_ns;
    }

    // Bytes of its datagrams that never reached the port: all, and those counted before the port's
    // first reading.
    struct SelfDatagrams {
        std::uint64_t all = 0;
        std::uint64_t before = 0;
    };
    [[nodiscard]] SelfDatagrams self_datagrams(const Qp &qp) const {
        SelfDatagrams sum;
        for (const UdPeer &peer : qp.ud_peers) {
            if (peer.tier != Tier::Self)
                continue;
            sum.all = add_saturating(sum.all, peer.tx_wire_bytes);
            if (is_before(qp, peer.first_ns))
                sum.before = add_saturating(sum.before, peer.first_tx_wire_bytes);
        }
        return sum;
    }

    // By the queue pair that received them.
    void add_self_datagrams(const Qp &qp) {
        for (const UdPeer &peer : qp.ud_peers) {
            const Index port = peer.remote_port != NONE ? peer.remote_port : qp.port;
            if (peer.tier != Tier::Self || port == NONE)
                continue;
            const std::uint64_t before =
                is_before(qp, peer.first_ns) ? peer.first_tx_wire_bytes : 0;
            std::uint64_t &bytes = self_received_[{port, peer.dest_qpn}];
            bytes = add_saturating(bytes, subtract_or_zero(peer.tx_wire_bytes, before));
        }
    }
    std::uint64_t without_self_datagrams(const Qp &qp, std::uint64_t rx_bytes) {
        const auto found = self_received_.find({qp.port, qp.key.qpn});
        if (!qp.is_datagram() || found == self_received_.end())
            return rx_bytes;
        const std::uint64_t taken = std::min(found->second, rx_bytes);
        found->second -= taken;
        return rx_bytes - taken;
    }

    void explain(const Qp &qp, PortBytes &bytes) {
        ++qps_[&bytes];
        if (!qp.bytes.tx_wire_bytes) {
            ++bytes.qps_without_bytes;
            return;
        }
        if (!qp.is_datagram() && qp.tier == Tier::Self) {
            add_known(bytes.self_tx_wire_bytes, qp.bytes.tx_wire_bytes);
            return;
        }
        const SelfDatagrams self = self_datagrams(qp);
        add_known(bytes.self_tx_wire_bytes, self.all);
        // A recording that starts during a transfer counts frames before it reads a port.
        const bool before = is_before(qp, qp.first_wire_ns);
        const std::uint64_t not_here = add_saturating(
            self.all, before ? subtract_or_zero(qp.first_tx_wire_bytes, self.before) : 0);
        add_known(bytes.explained_tx_bytes, subtract_or_zero(*qp.bytes.tx_wire_bytes, not_here));
        if (qp.bytes.rx_wire_bytes) {
            const std::uint64_t here =
                subtract_or_zero(*qp.bytes.rx_wire_bytes,
                                 before && !qp.bytes.rx_from_peer ? qp.first_rx_wire_bytes : 0);
            add_known(bytes.explained_rx_bytes, without_self_datagrams(qp, here));
        }
    }

    Model &model_;
    std::unordered_map<Index, std::vector<Index>> ports_by_host_;
    std::unordered_map<const PortBytes *, std::uint64_t> qps_;
    std::vector<std::set<Index>> counted_by_;                          // sessions, by port
    std::unordered_map<NumberKey, std::uint64_t, Hash> self_received_; // port, number: bytes
};

} // namespace

void reconcile_ports(Model &model) {
    Reconciler(model).run();
}

} // namespace collwire::model
