// SPDX-License-Identifier: Apache-2.0
#include "correlate/model/port_counters.h"

#include <array>
#include <cmath>
#include <unordered_map>

namespace collwire::model {

namespace {

using topology::Tier;

// InfiniBand port data counters cover a packet from the LRH to before the VCRC (InfiniBand
// architecture specification, PortCounters); a frame on the link has the 2 bytes of VCRC, too.
constexpr std::uint64_t VCRC_BYTES = 2;
// An extent that is not documented can be wrong by all the headers of a RoCE v2 frame with a VLAN
// tag and IPv6, and the FCS: 18 + 40 + 8 + 12 + 16 + 4 + 4.
constexpr std::uint64_t UNDOCUMENTED_BYTES_A_PACKET = 102;
constexpr double NS_PER_S = 1e9;

// Counters of one port in one recording, by which one tells bytes best.
struct Candidate {
    cw_counter_source source;
    std::string_view tx_bytes, rx_bytes, tx_packets, rx_packets;
    std::string_view name;
    bool software_only; // counts everything of the interface, and nothing that hardware sends past
                        // the kernel
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

struct PortKey {
    Index device;
    std::uint32_t port;
    friend bool operator==(const PortKey &, const PortKey &) = default;
};
struct Hash {
    std::size_t operator()(const PortKey &key) const {
        return mix(std::uint64_t{key.device} << 32U | key.port);
    }
};
using ByName = std::unordered_map<std::string, const Counter *>;

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

// Bytes that may lie between the moments at which the queue pairs and the counter were read, at
// both ends.
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
    const double bytes = bytes_per_unit *
                         (series.first_rate() * static_cast<double>(begin_ns) +
                          series.last_rate() * static_cast<double>(end_ns)) /
                         NS_PER_S;
    return bytes >= 1e18 ? std::uint64_t{1'000'000'000'000'000'000}
                         : static_cast<std::uint64_t>(std::llround(bytes));
}

struct Converted {
    Known bytes;
    std::uint64_t uncertainty_bytes = 0;
    std::string note;
};

// The counter's growth as whole frames.
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
        for (const Session &session : model_.sessions)
            if (!session.excluded)
                add_counters(session);
        for (Port &port : model_.ports) {
            if (port.bytes.source.empty())
                port.bytes.source = "none";
            port.bytes.explained_tx_bytes = 0;
            port.bytes.explained_rx_bytes = 0;
            port.bytes.self_tx_wire_bytes = 0;
        }
        for (const Qp &qp : model_.qps)
            if (qp.port != NONE)
                explain(qp, model_.ports[qp.port].bytes);
        for (Port &port : model_.ports)
            if (port.bytes.qps_without_bytes != 0 &&
                port.bytes.qps_without_bytes == qps_[&port.bytes]) {
                port.bytes.explained_tx_bytes.reset();
                port.bytes.explained_rx_bytes.reset();
                port.bytes.self_tx_wire_bytes.reset();
            }
    }

private:
    void add_counters(const Session &session) {
        std::unordered_map<PortKey, std::vector<const Counter *>, Hash> by_port;
        for (const Counter &counter : session.counters)
            by_port[{counter.device, counter.port}].push_back(&counter);
        for (const Index index : ports_of(session)) {
            Port &port = model_.ports[index];
            const auto found = by_port.find({port.device, port.number});
            if (found != by_port.end())
                add_port(session, port, found->second);
        }
    }

    [[nodiscard]] std::vector<Index> ports_of(const Session &session) {
        if (ports_by_host_.empty())
            for (Index index = 0; index < model_.ports.size(); ++index)
                ports_by_host_[model_.devices[model_.ports[index].device].host].push_back(index);
        return ports_by_host_[session.host];
    }

    void add_port(const Session &session, Port &port,
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
            return;
        }
    }

    void explain(const Qp &qp, PortBytes &bytes) {
        ++qps_[&bytes];
        if (!qp.bytes.tx_wire_bytes) {
            ++bytes.qps_without_bytes;
            return;
        }
        std::uint64_t self_bytes = 0;
        if (qp.is_datagram()) {
            for (const UdPeer &peer : qp.ud_peers)
                if (peer.tier == Tier::Self)
                    self_bytes = add_saturating(self_bytes, peer.tx_wire_bytes);
        } else if (qp.tier == Tier::Self) {
            add_known(bytes.self_tx_wire_bytes, qp.bytes.tx_wire_bytes);
            return;
        }
        add_known(bytes.self_tx_wire_bytes, self_bytes);
        // A recording that starts in the middle of a transfer counts frames before it reads a port.
        const Session &session = model_.sessions[qp.session];
        const bool before = qp.bytes.rung == BytesRung::Wire && qp.first_wire_ns != 0 &&
                            qp.first_wire_ns <= session.first_counters_ns;
        const std::uint64_t not_here =
            add_saturating(self_bytes, before ? qp.first_tx_wire_bytes : 0);
        add_known(bytes.explained_tx_bytes, subtract_or_zero(*qp.bytes.tx_wire_bytes, not_here));
        if (qp.bytes.rx_wire_bytes)
            add_known(bytes.explained_rx_bytes,
                      subtract_or_zero(*qp.bytes.rx_wire_bytes, before && !qp.bytes.rx_from_peer
                                                                    ? qp.first_rx_wire_bytes
                                                                    : 0));
    }

    Model &model_;
    std::unordered_map<Index, std::vector<Index>> ports_by_host_;
    std::unordered_map<const PortBytes *, std::uint64_t> qps_;
};

} // namespace

void reconcile_ports(Model &model) {
    Reconciler(model).run();
}

} // namespace collwire::model
