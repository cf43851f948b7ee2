// SPDX-License-Identifier: Apache-2.0
// Pairs the two ends of each connection. Linear except for sorting: candidates are found by hash or
// by neighbourhood, at most MAX_LOOKED_AT each.
#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include "collwire/qp_records.h"
#include "collwire/wire_records.h"
#include "correlate/model/connection.h"
#include "correlate/model/join.h"

namespace collwire::model {

namespace {

constexpr std::size_t MAX_CANDIDATES = 16;
constexpr std::size_t MAX_LOOKED_AT = 256;
// After connections have shown the clock offsets.
constexpr std::uint64_t SKEW_KNOWN_NS = 500'000'000;

struct NumberKey {
    Index place; // a device or a port
    std::uint32_t qpn;
    friend bool operator==(const NumberKey &, const NumberKey &) = default;
};
struct Hash {
    std::size_t operator()(const NumberKey &key) const {
        return mix(std::uint64_t{key.place} << 32U | key.qpn);
    }
};

// One end of a possible connection. Both ends of one connection have the same low and high end.
struct Side {
    NumberKey low, high;
    bool is_high;
    Life life;
    Index qp;
    std::vector<Index> later = {};   // the same queue pair in later recordings
    std::uint64_t latest_end_ns = 0; // of it and of those before it in its list

    [[nodiscard]] std::vector<Index> parts() const {
        std::vector<Index> all{qp};
        all.insert(all.end(), later.begin(), later.end());
        return all;
    }
};

class Pairer {
public:
    explicit Pairer(Model &model) : model_(model) {}

    void run() {
        gather_sides();
        pair_groups(false);
        estimate_clocks();
        pair_groups(true);
    }

private:
    void gather_sides();
    void pair_groups(bool clocks_known);
    void join_recordings(std::vector<Side> &sides) const;
    void pair_single(const Side &a, const Side &b);
    void pair_by_psns(std::vector<Side> &lows, std::vector<Side> &highs);
    void pair_many(std::vector<Side> &lows, std::vector<Side> &highs);
    [[nodiscard]] std::optional<std::size_t> best(const Side &of, const std::vector<Side> &among,
                                                  bool &ambiguous) const;
    void connect(const Side &a, const Side &b);
    [[nodiscard]] Index nearest(Index of, const std::vector<Index> &among) const;
    // Offset from host `from`'s realtime to host `to`'s, modulo 2^64.
    [[nodiscard]] std::optional<std::uint64_t> clock_shift(Index from, Index to) const;
    [[nodiscard]] Life life_there(const Qp &qp, const Life &life, Index host) const;
    void estimate_clocks();

    Model &model_;
    std::vector<Side> sides_;
    std::map<std::pair<Index, Index>, std::int64_t> clocks_; // hosts a < b: b minus a
};

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
            qp.pairing = Pairing::Paired; // with itself
            qp.peer = index;
            continue;
        }
        const bool is_high = std::tie(other.place, other.qpn) < std::tie(own.place, own.qpn);
        sides_.push_back(
            {is_high ? other : own, is_high ? own : other, is_high, life_of(model_, qp), index});
    }
    std::sort(sides_.begin(), sides_.end(), [](const Side &a, const Side &b) {
        return std::tie(a.low.place, a.low.qpn, a.high.place, a.high.qpn, a.is_high,
                        a.life.begin_ns, a.qp) < std::tie(b.low.place, b.low.qpn, b.high.place,
                                                          b.high.qpn, b.is_high, b.life.begin_ns,
                                                          b.qp);
    });
}

// Without clock offsets only groups with one queue pair at each end; these give the offsets. Then
// the others.
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
        join_recordings(lows);
        join_recordings(highs);
        const bool single = lows.size() == 1 && highs.size() == 1;
        const bool in_parts = single && !(lows[0].later.empty() && highs[0].later.empty());
        if (single && (!clocks_known || in_parts))
            pair_single(lows.front(), highs.front());
        if (!single && clocks_known && !lows.empty() && !highs.empty())
            pair_many(lows, highs);
    }
}

// A queue pair that outlives a recording is in the next one again, as a pre-existing one.
void Pairer::join_recordings(std::vector<Side> &sides) const {
    const auto goes_on = [&](const Qp &before, const Qp &after) {
        return after.has(CW_QP_PREEXISTING) && before.destroyed_ns == 0 &&
               before.session != after.session && before.host == after.host &&
               before.type == after.type &&
               (before.tgid == 0 || after.tgid == 0 || before.tgid == after.tgid) &&
               model_.sessions[before.session].end_ns <= model_.sessions[after.session].begin_ns;
    };
    std::vector<Side> joined;
    for (Side &side : sides) {
        if (!joined.empty()) {
            Side &before = joined.back();
            const Index newest = before.later.empty() ? before.qp : before.later.back();
            if (goes_on(model_.qps[newest], model_.qps[side.qp])) {
                before.later.push_back(side.qp);
                before.life.end_ns = std::max(before.life.end_ns, side.life.end_ns);
                continue;
            }
        }
        joined.push_back(std::move(side));
    }
    sides = std::move(joined);
}

std::optional<std::uint64_t> Pairer::clock_shift(Index from, Index to) const {
    if (from == to)
        return 0;
    const auto clock = clocks_.find(std::minmax(from, to));
    if (clock == clocks_.end())
        return std::nullopt;
    const auto shift_ns = static_cast<std::uint64_t>(clock->second);
    return from < to ? shift_ns : 0 - shift_ns;
}

// A queue pair's life by another host's clock, as far as the offset is known.
Life Pairer::life_there(const Qp &qp, const Life &life, Index host) const {
    const std::uint64_t rough_ns =
        model_.hosts[host].rough_ahead_ns - model_.hosts[qp.host].rough_ahead_ns;
    const std::uint64_t shift_ns = clock_shift(qp.host, host).value_or(rough_ns) - rough_ns;
    return {life.begin_ns + shift_ns, life.end_ns + shift_ns};
}

// The one with the longest common time.
Index Pairer::nearest(Index of, const std::vector<Index> &among) const {
    if (among.size() == 1)
        return among.front();
    const Qp &qp = model_.qps[of];
    const Life own = life_there(qp, life_of(model_, qp), model_.qps[among.front()].host);
    Index found = among.front();
    std::uint64_t found_overlap_ns = 0;
    for (const Index index : among) {
        const Life other = life_of(model_, model_.qps[index]);
        const std::uint64_t overlap_ns = subtract_or_zero(std::min(own.end_ns, other.end_ns),
                                                          std::max(own.begin_ns, other.begin_ns));
        if (overlap_ns > found_overlap_ns) {
            found = index;
            found_overlap_ns = overlap_ns;
        }
    }
    return found;
}

void Pairer::connect(const Side &a, const Side &b) {
    const std::vector<Index> a_parts = a.parts();
    const std::vector<Index> b_parts = b.parts();
    std::unordered_map<Index, std::size_t> taken_by;
    for (const auto &[from, to] : {std::pair{&a_parts, &b_parts}, std::pair{&b_parts, &a_parts}})
        for (const Index index : *from) {
            Qp &qp = model_.qps[index];
            qp.pairing = Pairing::Paired;
            qp.peer = nearest(index, *to);
            ++taken_by[qp.peer];
        }
    for (const std::vector<Index> *parts : {&a_parts, &b_parts})
        for (const Index index : *parts) {
            Qp &qp = model_.qps[index];
            qp.peer_in_parts =
                taken_by[index] != 1 || taken_by[qp.peer] != 1 || model_.qps[qp.peer].peer != index;
        }
}

void Pairer::pair_single(const Side &a, const Side &b) {
    if (!are_apart(a.life, b.life, SKEW_UNKNOWN_NS) &&
        !psns_contradict(model_.qps[a.qp], model_.qps[b.qp]))
        connect(a, b);
}

// Pairs connections whose two first sequence numbers are unique for their numbers, and removes them
// from both lists.
void Pairer::pair_by_psns(std::vector<Side> &lows, std::vector<Side> &highs) {
    struct Match {
        std::size_t low = 0, high = 0;
        std::size_t n_low = 0, n_high = 0;
    };
    const auto has_psns = [&](const Side &side) {
        const Qp &qp = model_.qps[side.qp];
        return qp.has(CW_QP_PSN_SQ) && qp.has(CW_QP_PSN_RQ) && !qp.has(CW_QP_PREEXISTING);
    };
    const auto key_of = [](std::uint32_t upwards, std::uint32_t downwards) {
        return std::uint64_t{upwards & PSN_MASK} << 32U | (downwards & PSN_MASK);
    };
    std::unordered_map<std::uint64_t, Match> matches;
    for (std::size_t i = 0; i < lows.size(); ++i)
        if (has_psns(lows[i])) {
            const cw_qp_event &address = model_.qps[lows[i].qp].address;
            Match &match = matches[key_of(address.sq_psn, address.rq_psn)];
            match.low = i;
            ++match.n_low;
        }
    for (std::size_t i = 0; i < highs.size(); ++i)
        if (has_psns(highs[i])) {
            const cw_qp_event &address = model_.qps[highs[i].qp].address;
            Match &match = matches[key_of(address.rq_psn, address.sq_psn)];
            match.high = i;
            ++match.n_high;
        }
    for (const auto &[psns, match] : matches)
        if (match.n_low == 1 && match.n_high == 1 &&
            !are_apart(lows[match.low].life, highs[match.high].life, SKEW_UNKNOWN_NS))
            connect(lows[match.low], highs[match.high]);
    for (std::vector<Side> *sides : {&lows, &highs})
        std::erase_if(*sides, [&](const Side &side) {
            return model_.qps[side.qp].pairing == Pairing::Paired;
        });
}

// Of those alive at the same time, the one with by far the longest overlap.
std::optional<std::size_t> Pairer::best(const Side &of, const std::vector<Side> &among,
                                        bool &ambiguous) const {
    const Qp &qp = model_.qps[of.qp];
    const Index other_host = model_.qps[among.front().qp].host;
    const bool clock_known = clock_shift(qp.host, other_host).has_value();
    const std::uint64_t slack_ns = clock_known ? SKEW_KNOWN_NS : SKEW_UNKNOWN_NS;
    const auto [begin_ns, end_ns] = life_there(qp, of.life, other_host);

    auto after = std::upper_bound(
        among.begin(), among.end(), add_saturating(end_ns, slack_ns),
        [](std::uint64_t time_ns, const Side &side) { return time_ns < side.life.begin_ns; });
    std::optional<std::size_t> found;
    std::uint64_t found_overlap_ns = 0;
    std::uint64_t second_overlap_ns = 0;
    std::size_t candidates = 0;
    std::size_t looked_at = 0;
    while (after != among.begin()) {
        --after;
        if (add_saturating(after->latest_end_ns, slack_ns) < begin_ns)
            break; // those before it have ended as well
        if (++looked_at > MAX_LOOKED_AT || candidates > MAX_CANDIDATES) {
            ambiguous = true;
            return std::nullopt;
        }
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

void Pairer::pair_many(std::vector<Side> &lows, std::vector<Side> &highs) {
    pair_by_psns(lows, highs);
    if (lows.empty() || highs.empty())
        return;
    for (std::vector<Side> *sides : {&lows, &highs}) {
        std::uint64_t latest_end_ns = 0;
        for (Side &side : *sides)
            side.latest_end_ns = latest_end_ns = std::max(latest_end_ns, side.life.end_ns);
    }
    const auto set_ambiguous = [&](const Side &side) {
        for (const Index index : side.parts())
            model_.qps[index].pairing = Pairing::Ambiguous;
    };
    for (const Side &low : lows) {
        bool ambiguous = false;
        const auto high = best(low, highs, ambiguous);
        std::optional<std::size_t> back;
        if (high)
            back = best(highs[*high], lows, ambiguous);
        if (back && lows[*back].qp == low.qp)
            connect(low, highs[*high]);
        else if (ambiguous)
            set_ambiguous(low);
    }
    for (const Side &high : highs) {
        if (model_.qps[high.qp].pairing == Pairing::Paired)
            continue;
        bool ambiguous = false;
        if (best(high, lows, ambiguous) || ambiguous)
            set_ambiguous(high);
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
        // The same frame in both directions: half the difference of the two delays is the clock
        // offset, the rest is the network's.
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
