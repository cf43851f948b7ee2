// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "collwire/qp_records.h"
#include "correlate/model/join.h"
#include "correlate/model/port_counters.h"

namespace collwire::model {

namespace {

using topology::Tier;

void add_rung(Sums &sums, const Qp &qp, const Known &tx_wire_bytes) {
    add_known(sums.tx_wire_bytes_by_rung[static_cast<std::size_t>(qp.bytes.rung)], tx_wire_bytes);
}

void add_qp(Sums &sums, const Qp &qp) {
    ++sums.qps;
    if (qp.bytes.rung == BytesRung::None)
        ++sums.qps_without_bytes;
    add_known(sums.tx_wire_bytes, qp.bytes.tx_wire_bytes);
    add_known(sums.tx_payload_bytes, qp.bytes.tx_payload_bytes);
    add_known(sums.rx_wire_bytes, qp.bytes.rx_wire_bytes);
    add_known(sums.rx_payload_bytes, qp.bytes.rx_payload_bytes);
    add_known(sums.retransmitted_wire_bytes, qp.bytes.retransmitted_wire_bytes);
    if (qp.pairing == Pairing::NotCaptured && !qp.bytes.rx_from_peer)
        add_known(sums.rx_wire_bytes_from_uncaptured, qp.bytes.rx_wire_bytes);
    add_rung(sums, qp, qp.bytes.tx_wire_bytes);
}

// The part of a datagram queue pair that went to one destination, or to unknown ones.
struct Part {
    std::string_view remote_host;
    std::string address; // if the host is not known
    bool captured = false;
    bool is_known = false;
    Tier tier = Tier::Unknown;
    Known tx_wire_bytes;
    Known tx_payload_bytes;
};

std::vector<Part> datagram_parts(const Qp &qp) {
    std::vector<Part> parts;
    std::uint64_t wire_bytes = 0;
    std::uint64_t payload_bytes = 0;
    for (const UdPeer &peer : qp.ud_peers) {
        Part part;
        part.remote_host = peer.remote_host;
        part.address = short_gid_text(peer.dgid);
        part.captured = peer.remote_port != NONE;
        part.is_known = !is_zero(peer.dgid);
        part.tier = peer.tier;
        part.tx_wire_bytes = peer.tx_wire_bytes;
        part.tx_payload_bytes = peer.tx_payload_bytes;
        wire_bytes = add_saturating(wire_bytes, peer.tx_wire_bytes);
        payload_bytes = add_saturating(payload_bytes, peer.tx_payload_bytes);
        parts.push_back(std::move(part));
    }
    if (qp.bytes.rung == BytesRung::None)
        return parts;
    const std::uint64_t rest = subtract_or_zero(qp.bytes.tx_wire_bytes.value_or(0), wire_bytes);
    const std::uint64_t payload_rest =
        subtract_or_zero(qp.bytes.tx_payload_bytes.value_or(0), payload_bytes);
    if (rest != 0 || payload_rest != 0) {
        Part part;
        part.address = DESTINATION_NOT_KNOWN;
        if (qp.bytes.tx_wire_bytes)
            part.tx_wire_bytes = rest;
        part.tx_payload_bytes = payload_rest;
        parts.push_back(std::move(part));
    }
    return parts;
}

} // namespace

std::string destination_of(const Qp &qp) {
    if (qp.had_several_peers)
        return "(several, one after the other)";
    if (!qp.remote_host.empty())
        return qp.remote_host;
    if (qp.has(CW_QP_ADDRESS) && !is_zero(qp.dgid()))
        return short_gid_text(qp.dgid());
    if (qp.has(CW_QP_ADDRESS) && qp.address.dlid != 0)
        return "LID " + std::to_string(qp.address.dlid);
    return DESTINATION_NOT_KNOWN;
}

namespace {

bool has_destination(const Qp &qp) {
    const bool has_address = qp.has(CW_QP_ADDRESS) && (!is_zero(qp.dgid()) || qp.address.dlid != 0);
    return qp.is_connected_type() && !qp.had_several_peers &&
           (qp.remote_port != NONE || has_address);
}

class QpAccountant {
public:
    explicit QpAccountant(Model &model) : model_(model) {}

    void run() {
        for (const Qp &qp : model_.qps) {
            add_qp(model_.total, qp);
            if (qp.process != NONE)
                add_qp(process_of(qp).all, qp);
            if (qp.is_datagram())
                add_datagram(qp);
            else
                add_connected(qp);
        }
        for (auto &[key, pair] : pairs_)
            model_.node_pairs.push_back(std::move(pair));
        reconcile_ports(model_);
    }

private:
    ProcessSums &process_of(const Qp &qp) {
        const auto [found, is_new] =
            processes_.try_emplace(qp.process, static_cast<Index>(model_.process_sums.size()));
        if (is_new) {
            model_.process_sums.emplace_back();
            model_.process_sums.back().process = qp.process;
        }
        return model_.process_sums[found->second];
    }

    NodePair &pair_of(const Qp &qp, const std::string &destination, bool captured) {
        const std::string &source = model_.hosts[qp.host].name;
        NodePair &pair = pairs_[{source, destination}];
        pair.source = source;
        pair.destination = destination;
        pair.destination_captured = captured;
        return pair;
    }

    void add_unplaced(const Qp &qp, Tier tier, bool is_known, const Known &tx_wire_bytes) {
        if (tier == Tier::Unknown && qp.port != NONE && is_known)
            model_.unplaced_tx_wire_bytes =
                add_saturating(model_.unplaced_tx_wire_bytes, tx_wire_bytes.value_or(0));
    }

    void add_connected(const Qp &qp) {
        const std::size_t tier = index_of(qp.tier);
        add_unplaced(qp, qp.tier, has_destination(qp), qp.bytes.tx_wire_bytes);
        add_qp(model_.tiers[tier], qp);
        if (qp.process != NONE)
            add_known(process_of(qp).tx_wire_bytes_by_tier[tier], qp.bytes.tx_wire_bytes);
        const bool has_sent =
            qp.bytes.tx_wire_bytes.value_or(0) != 0 || qp.bytes.tx_payload_bytes.value_or(0) != 0;
        if (qp.pairing == Pairing::None && !has_sent)
            return; // never connected
        NodePair &pair = pair_of(qp, destination_of(qp), qp.remote_port != NONE);
        add_qp(pair.all, qp);
        add_known(pair.tx_wire_bytes_by_tier[tier], qp.bytes.tx_wire_bytes);
    }

    void add_datagram(const Qp &qp) {
        std::array<bool, TIERS> in_tier{};
        std::set<const NodePair *> in_pair;
        for (const Part &part : datagram_parts(qp)) {
            const std::size_t tier = index_of(part.tier);
            add_unplaced(qp, part.tier, part.is_known, part.tx_wire_bytes);
            add_part(model_.tiers[tier], qp, part, !std::exchange(in_tier[tier], true));
            if (qp.process != NONE)
                add_known(process_of(qp).tx_wire_bytes_by_tier[tier], part.tx_wire_bytes);
            NodePair &pair =
                pair_of(qp, part.remote_host.empty() ? part.address : std::string(part.remote_host),
                        part.captured);
            add_part(pair.all, qp, part, in_pair.insert(&pair).second);
            add_known(pair.tx_wire_bytes_by_tier[tier], part.tx_wire_bytes);
        }
        // Its received bytes have no known tier: counts are by destination.
        Sums &unknown = model_.tiers[index_of(Tier::Unknown)];
        add_known(unknown.rx_wire_bytes, qp.bytes.rx_wire_bytes);
        add_known(unknown.rx_payload_bytes, qp.bytes.rx_payload_bytes);
        if (in_pair.empty() && qp.bytes.rung == BytesRung::None) {
            ++unknown.qps;
            ++unknown.qps_without_bytes;
        }
    }

    // Counts as one queue pair, however many of its destinations are in the sum.
    static void add_part(Sums &sums, const Qp &qp, const Part &part, bool is_first) {
        sums.qps += is_first ? 1 : 0;
        add_known(sums.tx_wire_bytes, part.tx_wire_bytes);
        add_known(sums.tx_payload_bytes, part.tx_payload_bytes);
        add_rung(sums, qp, part.tx_wire_bytes);
    }

    Model &model_;
    std::unordered_map<Index, Index> processes_;
    std::map<std::pair<std::string, std::string>, NodePair> pairs_;
};

} // namespace

void account(Model &model) {
    QpAccountant(model).run();
}

} // namespace collwire::model
