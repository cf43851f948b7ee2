// SPDX-License-Identifier: Apache-2.0
// The two ends of each connection. Linear but for sorting: every candidate is found by hash or by
// neighbourhood, and no more than MAX_CANDIDATES are looked at.
#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include "correlate/model/join.h"

namespace collwire::model {

namespace {

constexpr std::size_t MAX_CANDIDATES = 16;
// Clocks that nobody disciplines are apart by seconds. Addresses and numbers say that the two
// belong together; times only have to be of the same run.
constexpr std::uint64_t SKEW_UNKNOWN_NS = 60'000'000'000;
// Once connections have told how far the clocks are apart.
constexpr std::uint64_t SKEW_KNOWN_NS = 500'000'000;

struct Life {
    std::uint64_t begin_ns; // realtime
    std::uint64_t end_ns;
};

struct NumberKey {
    Index place; // a device or a port
    std::uint32_t qpn;
    friend bool operator==(const NumberKey &, const NumberKey &) = default;
};
struct LidKey {
    std::uint64_t prefix;
    std::uint32_t lid;
    friend bool operator==(const LidKey &, const LidKey &) = default;
};
struct Hash {
    std::size_t operator()(const NumberKey &key) const {
        return mix(std::uint64_t{key.place} << 32U | key.qpn);
    }
    std::size_t operator()(const LidKey &key) const { return mix(mix(key.prefix) ^ key.lid); }
};

// One end of a possible connection. Both ends of one connection have the same low and high end.
struct Side {
    NumberKey low, high;
    bool is_high;
    Life life;
    Index qp;
};

class Pairer {
public:
    explicit Pairer(Model &model) : model_(model) {}

    void run() {
        index_ports();
        for (Qp &qp : model_.qps)
            find_remote_port(qp);
        find_missing_addresses();
        gather_sides();
        pair_groups(false);
        estimate_clocks();
        pair_groups(true);
    }

private:
    void index_ports();
    void find_remote_port(Qp &qp);
    void find_missing_addresses();
    void gather_sides();
    void pair_groups(bool clocks_known);
    void pair_single(const Side &a, const Side &b);
    void pair_many(const std::vector<Side> &lows, const std::vector<Side> &highs);
    [[nodiscard]] std::optional<std::size_t> best(const Side &of, const std::vector<Side> &among,
                                                  bool &ambiguous) const;
    void connect(Index a, Index b);
    void estimate_clocks();
    [[nodiscard]] Life life_of(const Qp &qp) const;
    [[nodiscard]] bool psns_contradict(const Qp &a, const Qp &b) const;
    [[nodiscard]] bool has_end(Index port, std::uint32_t qpn, std::uint32_t dest_qpn) const;

    Model &model_;
    std::unordered_map<Gid, std::vector<Index>, GidHash> by_gid_;
    std::unordered_map<LidKey, std::vector<Index>, Hash> by_lid_;
    std::unordered_map<NumberKey, std::vector<Index>, Hash> by_number_; // device, qpn
    std::vector<Side> sides_;
    std::map<std::pair<Index, Index>, std::int64_t> clocks_; // hosts a < b: b minus a
};

void add_port(std::vector<Index> &ports, Index port) {
    if (ports.size() < MAX_CANDIDATES && std::find(ports.begin(), ports.end(), port) == ports.end())
        ports.push_back(port);
}

void Pairer::index_ports() {
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
        if (qp.device != NONE)
            by_number_[{qp.device, qp.key.qpn}].push_back(index);
    }
}

bool Pairer::has_end(Index port, std::uint32_t qpn, std::uint32_t dest_qpn) const {
    const auto found = by_number_.find({model_.ports[port].device, qpn});
    if (found == by_number_.end())
        return false;
    std::size_t looked_at = 0;
    for (const Index index : found->second) {
        const Qp &qp = model_.qps[index];
        if (qp.has(CW_QP_DEST) && qp.address.dest_qpn == dest_qpn)
            return true;
        if (++looked_at == MAX_CANDIDATES)
            break;
    }
    return false;
}

void Pairer::find_remote_port(Qp &qp) {
    for (UdPeer &peer : qp.ud_peers) {
        const auto found = by_gid_.find(peer.dgid);
        if (found != by_gid_.end() && found->second.size() == 1)
            peer.remote_port = found->second.front();
    }
    if (!qp.is_connected_type() || !qp.has(CW_QP_ADDRESS))
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
    // One address on several ports: two boots of one host, or networks that do not meet. The other
    // end tells which.
    std::size_t matches = 0;
    for (const Index port : *candidates) {
        if (!has_end(port, qp.address.dest_qpn, qp.key.qpn))
            continue;
        qp.remote_port = port;
        ++matches;
    }
    if (matches > 1) {
        qp.remote_port = NONE;
        qp.pairing = Pairing::Ambiguous;
    }
}

// What netlink alone tells of a queue pair has no address; the other end's address tells it.
void Pairer::find_missing_addresses() {
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
        if (qp.remote_port != NONE || qp.port == NONE || !qp.is_connected_type() ||
            !qp.has(CW_QP_DEST) || qp.has(CW_QP_ADDRESS))
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

Life Pairer::life_of(const Qp &qp) const {
    const Host &host = model_.hosts[qp.host];
    const Session &session = model_.sessions[qp.session];
    const std::uint64_t begin_ns =
        qp.has(CW_QP_PREEXISTING) ? session.begin_ns : qp.key.generation_ns;
    const std::uint64_t end_ns = qp.destroyed_ns != 0 ? qp.destroyed_ns : session.end_ns;
    const std::uint64_t begin_realtime_ns = host.realtime_ns(begin_ns);
    return {begin_realtime_ns,
            std::max(begin_realtime_ns, host.realtime_ns(std::max(begin_ns, end_ns)))};
}

void Pairer::gather_sides() {
    for (Index index = 0; index < model_.qps.size(); ++index) {
        Qp &qp = model_.qps[index];
        if (!qp.is_connected_type() || qp.pairing == Pairing::Ambiguous)
            continue;
        if (!qp.has(CW_QP_DEST) && !qp.has(CW_QP_ADDRESS))
            continue; // never connected
        qp.pairing = Pairing::NotCaptured;
        if (qp.remote_port == NONE || qp.port == NONE || !qp.has(CW_QP_DEST))
            continue;
        const NumberKey own{qp.port, qp.key.qpn};
        const NumberKey other{qp.remote_port, qp.address.dest_qpn};
        if (own == other) {
            connect(index, index); // connected to itself
            continue;
        }
        const bool is_high = std::tie(other.place, other.qpn) < std::tie(own.place, own.qpn);
        sides_.push_back(
            {is_high ? other : own, is_high ? own : other, is_high, life_of(qp), index});
    }
    std::sort(sides_.begin(), sides_.end(), [](const Side &a, const Side &b) {
        return std::tie(a.low.place, a.low.qpn, a.high.place, a.high.qpn, a.is_high,
                        a.life.begin_ns, a.qp) < std::tie(b.low.place, b.low.qpn, b.high.place,
                                                          b.high.qpn, b.is_high, b.life.begin_ns,
                                                          b.qp);
    });
}

// Without clocks only groups of one queue pair at each end; they tell the clocks. Then the others.
void Pairer::pair_groups(bool clocks_known) {
    std::vector<Side> lows;
    std::vector<Side> highs;
    for (std::size_t begin = 0; begin < sides_.size();) {
        lows.clear();
        highs.clear();
        std::size_t end = begin;
        for (; end < sides_.size() && sides_[end].low == sides_[begin].low &&
               sides_[end].high == sides_[begin].high;
             ++end)
            (sides_[end].is_high ? highs : lows).push_back(sides_[end]);
        begin = end;
        const bool single = lows.size() == 1 && highs.size() == 1;
        if (single && !clocks_known)
            pair_single(lows.front(), highs.front());
        if (!single && clocks_known && !lows.empty() && !highs.empty())
            pair_many(lows, highs);
    }
}

// The first packet sequence numbers of a connection are agreed by its two ends. One that was there
// before us has moved on.
bool Pairer::psns_contradict(const Qp &a, const Qp &b) const {
    if (a.has(CW_QP_PREEXISTING) || b.has(CW_QP_PREEXISTING))
        return false;
    const auto differ = [](const Qp &from, const Qp &to) {
        return from.has(CW_QP_PSN_SQ) && to.has(CW_QP_PSN_RQ) &&
               from.address.sq_psn != to.address.rq_psn;
    };
    return differ(a, b) || differ(b, a);
}

void Pairer::connect(Index a, Index b) {
    for (const auto &[from, to] : {std::pair{a, b}, std::pair{b, a}}) {
        model_.qps[from].pairing = Pairing::Paired;
        model_.qps[from].peer = to;
    }
}

void Pairer::pair_single(const Side &a, const Side &b) {
    const bool apart = a.life.begin_ns > add_saturating(b.life.end_ns, SKEW_UNKNOWN_NS) ||
                       b.life.begin_ns > add_saturating(a.life.end_ns, SKEW_UNKNOWN_NS);
    if (!apart)
        connect(a.qp, b.qp);
}

// Of those that lived at the same time the one that overlaps by far the most.
std::optional<std::size_t> Pairer::best(const Side &of, const std::vector<Side> &among,
                                        bool &ambiguous) const {
    const Qp &qp = model_.qps[of.qp];
    const Index other_host = model_.qps[among.front().qp].host;
    const auto clock = clocks_.find(std::minmax(qp.host, other_host));
    const bool clock_known = clock != clocks_.end() || qp.host == other_host;
    // Other minus own, modulo 2^64.
    std::uint64_t shift_ns = clock == clocks_.end() ? 0 : static_cast<std::uint64_t>(clock->second);
    if (other_host < qp.host)
        shift_ns = 0 - shift_ns;
    const std::uint64_t slack_ns = clock_known ? SKEW_KNOWN_NS : SKEW_UNKNOWN_NS;
    const auto shifted = [&](std::uint64_t time_ns) { return time_ns + shift_ns; };
    const std::uint64_t begin_ns = shifted(of.life.begin_ns);
    const std::uint64_t end_ns = shifted(of.life.end_ns);

    auto after = std::upper_bound(
        among.begin(), among.end(), add_saturating(end_ns, slack_ns),
        [](std::uint64_t time_ns, const Side &side) { return time_ns < side.life.begin_ns; });
    std::optional<std::size_t> found;
    std::uint64_t found_overlap_ns = 0;
    std::uint64_t second_overlap_ns = 0;
    std::size_t candidates = 0;
    for (std::size_t looked_at = 0; after != among.begin() && looked_at < MAX_CANDIDATES;
         ++looked_at) {
        --after;
        if (add_saturating(after->life.end_ns, slack_ns) < begin_ns ||
            psns_contradict(qp, model_.qps[after->qp]))
            continue;
        const std::uint64_t overlap_ns =
            subtract_or_zero(std::min(add_saturating(end_ns, slack_ns), after->life.end_ns),
                             std::max(subtract_or_zero(begin_ns, slack_ns), after->life.begin_ns));
        ++candidates;
        if (!found || overlap_ns > found_overlap_ns) {
            second_overlap_ns = found ? found_overlap_ns : 0;
            found = static_cast<std::size_t>(after - among.begin());
            found_overlap_ns = overlap_ns;
        } else {
            second_overlap_ns = std::max(second_overlap_ns, overlap_ns);
        }
    }
    if (candidates > 1 && (!clock_known || second_overlap_ns > found_overlap_ns / 2)) {
        ambiguous = true;
        return std::nullopt;
    }
    return found;
}

void Pairer::pair_many(const std::vector<Side> &lows, const std::vector<Side> &highs) {
    for (const Side &low : lows) {
        bool ambiguous = false;
        const auto high = best(low, highs, ambiguous);
        std::optional<std::size_t> back;
        if (high)
            back = best(highs[*high], lows, ambiguous);
        if (back && lows[*back].qp == low.qp)
            connect(low.qp, highs[*high].qp);
        else if (ambiguous)
            model_.qps[low.qp].pairing = Pairing::Ambiguous;
    }
    for (const Side &high : highs) {
        Qp &qp = model_.qps[high.qp];
        if (qp.pairing == Pairing::Paired)
            continue;
        bool ambiguous = false;
        if (best(high, lows, ambiguous) || ambiguous)
            qp.pairing = Pairing::Ambiguous;
    }
}

void Pairer::estimate_clocks() {
    std::map<std::pair<Index, Index>, std::vector<std::int64_t>> by_frames;
    std::map<std::pair<Index, Index>, std::vector<std::int64_t>> by_connect;
    for (const Qp &a : model_.qps) {
        if (a.peer == NONE)
            continue;
        const Qp &b = model_.qps[a.peer];
        if (a.host >= b.host)
            continue;
        const auto realtime = [&](const Qp &qp, std::uint64_t time_ns) {
            return model_.hosts[qp.host].realtime_ns(time_ns);
        };
        const auto difference = [&](std::uint64_t b_ns, std::uint64_t a_ns) {
            return static_cast<std::int64_t>(realtime(b, b_ns) - realtime(a, a_ns));
        };
        const std::pair<Index, Index> hosts{a.host, b.host};
        if (a.connected_ns != 0 && b.connected_ns != 0)
            by_connect[hosts].push_back(difference(b.connected_ns, a.connected_ns));
        if (!a.wire || !b.wire)
            continue;
        const cw_wire_counters &a_wire = a.wire->last;
        const cw_wire_counters &b_wire = b.wire->last;
        // The same frame in both directions: half the difference of the two ways is the clocks',
        // the rest the network's.
        const bool same_frames = a_wire.tx.first_ns != 0 && b_wire.tx.first_ns != 0 &&
                                 b_wire.rx.first_ns != 0 && a_wire.rx.first_ns != 0 &&
                                 a_wire.tx.first_psn == b_wire.rx.first_psn &&
                                 b_wire.tx.first_psn == a_wire.rx.first_psn;
        if (same_frames) {
            const std::int64_t there = difference(b_wire.rx.first_ns, a_wire.tx.first_ns);
            const std::int64_t back = difference(b_wire.tx.first_ns, a_wire.rx.first_ns);
            by_frames[hosts].push_back(there / 2 + back / 2);
        }
    }
    for (auto &[hosts, connects] : by_connect)
        if (auto &frames = by_frames[hosts]; frames.empty())
            frames = std::move(connects);
    for (auto &[hosts, differences] : by_frames) {
        if (differences.empty())
            continue;
        std::sort(differences.begin(), differences.end());
        const std::int64_t median = differences[differences.size() / 2];
        clocks_[hosts] = median;
        const std::uint64_t spread_ns = static_cast<std::uint64_t>(differences.back()) -
                                        static_cast<std::uint64_t>(differences.front());
        model_.clock_differences.push_back(
            {hosts.first, hosts.second, median, spread_ns, differences.size()});
    }
}

} // namespace

void pair_ends(Model &model) {
    Pairer(model).run();
}

} // namespace collwire::model
