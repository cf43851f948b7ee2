// SPDX-License-Identifier: Apache-2.0
// Queue pairs: their events, and the counts of their bytes.
#include <algorithm>
#include <cstring>
#include <tuple>

#include "collwire/post_records.h"
#include "collwire/qp_records.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "collwire/wire_records.h"
#include "correlate/capture/kinds.h"
#include "correlate/model/ingest.h"
#include "correlate/model/post_counters.h"
#include "correlate/model/posted.h"

namespace collwire::model {

using capture::record_as;
using capture::text_of;

namespace {

// A segment starts with the whole state, and the next sample follows a sampling interval later.
// Destinations of datagrams have no time of their first frame, so the time separates them.
constexpr std::uint64_t SNAPSHOT_WITHIN_NS = 500'000'000;
// Two stretches of retransmission this near are one; more stretches than this of one queue pair are
// joined.
constexpr std::uint64_t RETRANSMISSION_GAP_NS = 2'500'000'000;
constexpr std::size_t MAX_RETRANSMISSIONS = 16;

// Enough for any life; a queue pair that is reset and connected over and over must not make reading
// slow.
constexpr std::size_t MAX_STATES = 64;
// Created, three changes of its state on the way to a connection, destroyed.
constexpr std::size_t USUAL_STATES = 5;

// Months of slices at the shortest period.
constexpr std::size_t MAX_POST_SLICES = 1'000'000;

constexpr std::uint8_t STATE_RTR = 2, STATE_RTS = 3, STATE_UNKNOWN = 0xff;

std::uint64_t all_wire_bytes(const cw_wire_direction &direction) {
    std::uint64_t bytes = 0;
    for (const std::uint64_t of_class : direction.wire_bytes)
        bytes = add_saturating(bytes, of_class);
    return bytes;
}

std::uint64_t all_frames(const cw_wire_direction &direction) {
    std::uint64_t frames = 0;
    for (const std::uint64_t of_class : direction.frames)
        frames = add_saturating(frames, of_class);
    return frames;
}

void add_retransmission(std::vector<Retransmission> &stretches, const Retransmission &added) {
    if (!stretches.empty()) {
        Retransmission &last = stretches.back();
        if (added.from_ns <= add_saturating(last.to_ns, RETRANSMISSION_GAP_NS) ||
            stretches.size() >= MAX_RETRANSMISSIONS) {
            last.to_ns = std::max(last.to_ns, added.to_ns);
            last.frames = add_saturating(last.frames, added.frames);
            last.rx_frames = add_saturating(last.rx_frames, added.rx_frames);
            return;
        }
    }
    stretches.push_back(added);
}

void note_retransmissions(Qp &qp, const cw_wire_counters &now, std::uint64_t now_ns) {
    cw_wire_counters before{};
    std::uint64_t from_ns = now.tx.first_ns != 0 ? now.tx.first_ns : qp.key.generation_ns;
    if (qp.wire) {
        before = qp.wire->last;
        from_ns = qp.wire->last_ns;
    }
    const std::uint64_t frames =
        subtract_or_zero(now.tx.frames[CW_WIRE_RETRANSMIT], before.tx.frames[CW_WIRE_RETRANSMIT]);
    if (frames == 0)
        return;
    add_retransmission(qp.retransmissions,
                       {std::min(from_ns, now_ns), now_ns, frames,
                        subtract_or_zero(all_frames(now.rx), all_frames(before.rx))});
}

// The baseline holds the direction's counts before `since_ns`, if it had started by then.
void subtract(cw_wire_direction &from, const cw_wire_direction &baseline, std::uint64_t since_ns) {
    if (from.first_ns == 0 || from.first_ns >= since_ns)
        return;
    for (std::size_t i = 0; i < CW_WIRE_CLASSES; ++i) {
        from.frames[i] = subtract_or_zero(from.frames[i], baseline.frames[i]);
        from.wire_bytes[i] = subtract_or_zero(from.wire_bytes[i], baseline.wire_bytes[i]);
        from.payload_bytes[i] = subtract_or_zero(from.payload_bytes[i], baseline.payload_bytes[i]);
    }
}

void subtract(cw_post_counters &from, const cw_post_counters &baseline, std::uint64_t since_ns) {
    if (from.first_ns == 0 || from.first_ns >= since_ns)
        return;
    combine(from, baseline, subtract_or_zero);
}

nccl::ByteSample sample_of(const cw_wire_counters &wire, std::uint64_t time_ns) {
    const cw_wire_direction &tx = wire.tx;
    return {.time_ns = time_ns,
            .last_ns = tx.last_ns,
            .payload_bytes = tx.payload_bytes[CW_WIRE_REQUEST],
            .wire_bytes =
                add_saturating(tx.wire_bytes[CW_WIRE_REQUEST], tx.wire_bytes[CW_WIRE_RETRANSMIT])};
}

nccl::ByteSample sample_of(const cw_post_counters &posts, std::uint64_t time_ns) {
    return {.time_ns = time_ns, .payload_bytes = posted_payload_bytes(posts)};
}

// Puts the gaps in time order. A gap starts with a reading, which ends the previous gap.
void part_overlapping(std::vector<std::pair<std::uint64_t, std::uint64_t>> &gaps) {
    std::sort(gaps.begin(), gaps.end());
    std::size_t n = 0;
    for (const auto &gap : gaps) {
        if (n != 0 && gap.second <= gaps[n - 1].second)
            continue;
        if (n != 0 && gap.first <= gaps[n - 1].first)
            --n;
        else if (n != 0)
            gaps[n - 1].second = std::min(gaps[n - 1].second, gap.first);
        gaps[n++] = gap;
    }
    gaps.resize(n);
}

// If the first segment is missing, counting starts at the first sample.
template <typename Counters>
void keep(std::unique_ptr<nccl::ByteSeries> &series, const Counters &counters,
          std::uint64_t time_ns, bool from_start) {
    const nccl::ByteSample sample = sample_of(counters, time_ns);
    if (!series) {
        series = std::make_unique<nccl::ByteSeries>();
        if (!from_start)
            series->set_baseline(sample);
    }
    series->add(sample);
}

template <typename Counters>
void keep(Snapshots<Counters> &snapshots, const Counters &now, std::uint64_t now_ns,
          bool from_start) {
    if (!from_start && (!snapshots.baseline || now_ns < snapshots.baseline_ns)) {
        snapshots.baseline = std::make_unique<Counters>(now);
        snapshots.baseline_ns = now_ns;
    }
    if (snapshots.last_ns == 0 || now_ns >= snapshots.last_ns) {
        snapshots.last = now;
        snapshots.last_ns = now_ns;
    }
}

} // namespace

Index Ingest::qp_of(const cw_qp_key &key) {
    const auto [found, is_new] =
        qps_.try_emplace(QpKey{session_, key.dev_index, key.qpn & CW_QPN_MASK, key.generation_ns},
                         static_cast<Index>(model_.qps.size()));
    if (is_new) {
        Qp qp;
        qp.session = session_;
        qp.host = session().host;
        qp.key = key;
        qp.key.qpn &= CW_QPN_MASK;
        qp.device = device_by_index(key.dev_index);
        model_.qps.push_back(std::move(qp));
    }
    Qp &qp = model_.qps[found->second];
    if (qp.device == NONE)
        qp.device = device_by_index(key.dev_index);
    return found->second;
}

void Ingest::add_qp_event(std::span<const std::byte> record) {
    const auto event = record_as<cw_qp_event>(record);
    Index device = device_by_index(event.key.dev_index);
    if (device == NONE && event.device[0] != 0) {
        device = device_by_name(text_of(event.device));
        devices_by_index_[{session_, event.key.dev_index}] = device;
    }
    Qp &qp = model_.qps[qp_of(event.key)];
    const std::uint64_t time_ns = event.header.time_ns;
    const bool newer = time_ns >= qp.address_ns;
    const bool had = qp.has_events;
    qp.has_events = true;
    if (event.tgid != 0) {
        qp.tgid = event.tgid;
        if (event.start_boottime_ns != 0)
            qp.start_boottime_ns = event.start_boottime_ns;
        if (event.comm[0] != 0)
            qp.comm = text_of(event.comm);
    }
    if (event.header.kind == CW_KIND_QP_CREATE)
        qp.maker_tid = event.tid;
    if (event.user_handle != 0)
        qp.user_handle = event.user_handle;
    if (event.qp_type != 0xff)
        qp.type = event.qp_type;
    if (event.port != 0 && event.result == 0 && (newer || qp.port_number == 0))
        qp.port_number = event.port;

    const StateChange change{time_ns,
                             event.header.kind,
                             event.old_state,
                             event.new_state,
                             event.result,
                             event.event,
                             event.header.kind == CW_KIND_QP_STATE && event.attr_mask == 0 &&
                                 (event.flags & CW_QP_FROM_NETLINK) != 0};
    if (std::find(qp.states.begin(), qp.states.end(), change) != qp.states.end())
        return; // the same segment twice
    if (qp.states.empty())
        qp.states.reserve(USUAL_STATES);
    if (qp.states.size() < MAX_STATES)
        qp.states.push_back(change);
    if (event.header.kind == CW_KIND_QP_ERROR) {
        Event error;
        error.time_ns = time_ns;
        error.host = qp.host;
        error.device = qp.device;
        error.port_number = event.port;
        error.qpn = qp.key.qpn;
        error.qp = static_cast<Index>(&qp - model_.qps.data());
        const std::string_view name = capture::async_event_name(event.event);
        error.kind = "qp_error";
        error.what = "queue pair error";
        if (!name.empty())
            error.what += ": " + std::string(name);
        add_event(std::move(error));
        return;
    }
    if (event.result != 0)
        return; // a call that failed changed nothing
    if (event.header.kind == CW_KIND_QP_DESTROY) {
        qp.destroyed_ns = time_ns;
        return;
    }
    if (event.new_state != STATE_UNKNOWN && time_ns >= qp.state_ns) {
        qp.state = event.new_state;
        qp.state_ns = time_ns;
    }
    if ((event.new_state == STATE_RTR || event.new_state == STATE_RTS) &&
        event.header.kind == CW_KIND_QP_STATE &&
        (qp.connected_ns == 0 || time_ns < qp.connected_ns))
        qp.connected_ns = time_ns;

    const auto take = [&](std::uint32_t flag) {
        return (event.flags & flag) != 0 && (newer || !qp.has(flag));
    };
    cw_qp_event &address = qp.address;
    const auto is_another = [&](std::uint32_t flag, bool differs) {
        return (event.flags & flag) != 0 && newer && qp.has(flag) && differs;
    };
    if (is_another(CW_QP_DEST, address.dest_qpn != (event.dest_qpn & CW_QPN_MASK)) ||
        is_another(CW_QP_ADDRESS, std::memcmp(address.dgid, event.dgid, sizeof(event.dgid)) != 0 ||
                                      address.dlid != event.dlid))
        qp.readdressed_ns = time_ns;
    if (take(CW_QP_ADDRESS)) {
        std::memcpy(address.dgid, event.dgid, sizeof(address.dgid));
        std::memcpy(address.dmac, event.dmac, sizeof(address.dmac));
        address.dlid = event.dlid;
        address.service_level = event.service_level;
        address.traffic_class = event.traffic_class;
        address.hop_limit = event.hop_limit;
        address.flow_label = event.flow_label;
        address.static_rate = event.static_rate;
        address.timeout = event.timeout;
        address.retry_count = event.retry_count;
        address.rnr_retry = event.rnr_retry;
        qp.flags &= ~std::uint32_t{CW_QP_FROM_NCCL};
    }
    if (take(CW_QP_SGID)) {
        std::memcpy(address.sgid, event.sgid, sizeof(address.sgid));
        address.gid_type = event.gid_type;
        address.sgid_index = event.sgid_index;
    }
    if (take(CW_QP_DEST))
        address.dest_qpn = event.dest_qpn & CW_QPN_MASK;
    if (take(CW_QP_PATH_MTU))
        address.path_mtu = event.path_mtu;
    if (take(CW_QP_PSN_RQ))
        address.rq_psn = event.rq_psn;
    if (take(CW_QP_PSN_SQ))
        address.sq_psn = event.sq_psn;
    if (take(CW_QP_UDP_SPORT))
        address.udp_sport = event.udp_sport;
    qp.flags |= event.flags & ~std::uint32_t{CW_QP_FROM_NETLINK};
    if ((event.flags & CW_QP_FROM_NETLINK) != 0 && !had)
        qp.flags |= CW_QP_FROM_NETLINK;
    if ((event.flags & CW_QP_FROM_NETLINK) == 0)
        qp.flags &= ~std::uint32_t{CW_QP_FROM_NETLINK};
    qp.address_ns = std::max(qp.address_ns, time_ns);
}

void Ingest::add_qp_wire(std::span<const std::byte> record) {
    const auto wire = record_as<cw_qp_wire>(record);
    const std::uint64_t time_ns = wire.header.time_ns;
    Qp &qp = model_.qps[qp_of(wire.key)];
    session().last_wire_sample_ns = std::max(session().last_wire_sample_ns, time_ns);
    // The first record of a later segment is where counting starts, not an event.
    const bool counts =
        session().from_start || qp.wire || wire.counters.tx.first_ns >= segment_start_ns_;
    if (counts && (!qp.wire || time_ns > qp.wire->last_ns))
        note_retransmissions(qp, wire.counters, time_ns);
    if (!qp.wire)
        qp.wire = std::make_unique<Snapshots<cw_wire_counters>>();
    keep(*qp.wire, wire.counters, time_ns, session().from_start);
    if (keeps_series())
        keep(qp.wire_series, wire.counters, time_ns,
             session().from_start || wire.counters.tx.first_ns >= segment_start_ns_);
    if (!session().from_start)
        return;
    if (session().first_wire_sample_ns == 0 || time_ns < session().first_wire_sample_ns)
        session().first_wire_sample_ns = time_ns;
    if (qp.first_wire_ns == 0 || time_ns < qp.first_wire_ns) {
        qp.first_wire_ns = time_ns;
        qp.first_tx_wire_bytes = all_wire_bytes(wire.counters.tx);
        qp.first_rx_wire_bytes = all_wire_bytes(wire.counters.rx);
    }
}

void Ingest::add_ud_peer(std::span<const std::byte> record) {
    const auto from = record_as<cw_ud_peer>(record);
    UdKey key{qp_of(from.key), from.dest_qpn & CW_QPN_MASK, {}};
    std::copy_n(from.dgid, key.dgid.size(), key.dgid.begin());
    const UdCounts counts{from.tx_frames, from.tx_wire_bytes, from.tx_payload_bytes};
    const auto [found, is_new] = ud_.try_emplace(key);
    UdSnapshots &snapshots = found->second;
    // New entries in a later segment that is present are new.
    if (is_new && !session().from_start && session().segments.size() == 1 &&
        from.key.generation_ns < segment_start_ns_ &&
        from.header.time_ns < add_saturating(segment_start_ns_, SNAPSHOT_WITHIN_NS))
        snapshots.baseline = counts;
    if (is_new || from.header.time_ns < snapshots.first_ns) {
        snapshots.first_ns = from.header.time_ns;
        snapshots.first_wire_bytes = counts.wire_bytes;
    }
    if (is_new || from.header.time_ns >= snapshots.last_ns) {
        snapshots.last = counts;
        snapshots.last_ns = from.header.time_ns;
    }
}

Index Ingest::posts_of(const cw_verbs_key &key) {
    const PostKey wanted{session_, key.tgid, key.qpn & CW_QPN_MASK, key.epoch, key.context};
    const auto [found, is_new] =
        post_index_.try_emplace(wanted, static_cast<Index>(model_.posts.size()));
    if (is_new) {
        Posts posts;
        posts.session = session_;
        posts.key = key;
        posts.key.qpn &= CW_QPN_MASK;
        model_.posts.push_back(std::move(posts));
    }
    return found->second;
}

void Ingest::add_qp_post(std::span<const std::byte> record) {
    const auto from = record_as<cw_qp_post>(record);
    Posts &posts = model_.posts[posts_of(from.key)];
    keep(posts.counters, from.counters, from.header.time_ns, session().from_start);
    if (keeps_series())
        keep(posts.series, from.counters, from.header.time_ns,
             session().from_start || from.counters.first_ns >= segment_start_ns_);
}

void Ingest::add_verbs_qp(std::span<const std::byte> record) {
    const auto from = record_as<cw_verbs_qp>(record);
    Posts &posts = model_.posts[posts_of(from.key)];
    if (posts.first_seen_ns != 0 && posts.first_seen_ns <= from.header.time_ns)
        return;
    posts.first_seen_ns = from.header.time_ns;
    posts.start_boottime_ns = from.start_boottime_ns;
    posts.device = text_of(from.device);
}

void Ingest::add_post_slice(std::span<const std::byte> record) {
    const auto from = record_as<cw_post_slice>(record);
    if (session().post_slices.size() < MAX_POST_SLICES)
        session().post_slices.push_back(
            {from.header.time_ns, from.tgid, from.counted, from.on_ns, from.period_ns});
}

// ---- the end

void Ingest::finish_sessions() {
    for (Host &host : model_.hosts) {
        auto &anchors = host.anchors;
        std::sort(anchors.begin(), anchors.end(), [](const ClockAnchor &a, const ClockAnchor &b) {
            return a.monotonic_ns < b.monotonic_ns;
        });
    }
    for (Port &port : model_.ports) {
        std::sort(port.gids.begin(), port.gids.end());
        port.gids.erase(std::unique(port.gids.begin(), port.gids.end()), port.gids.end());
    }
    for (Index index = 0; index < model_.sessions.size(); ++index) {
        Session &current = model_.sessions[index];
        current.end_ns = std::max(current.end_ns, current.begin_ns);
        part_overlapping(current.sample_gaps);
        // Each segment repeats the last one.
        auto &slices = current.post_slices;
        std::sort(slices.begin(), slices.end());
        slices.erase(std::unique(slices.begin(), slices.end()), slices.end());
        // A recorder writes its sources' states before its devices.
        for (auto &[key, source] : current.sources)
            if (const auto found = devices_by_index_.find({index, key.second});
                key.second != DEV_INDEX_NODE && source.device == NONE &&
                found != devices_by_index_.end())
                source.device = found->second;
    }
}

void Ingest::finish_qps() {
    for (Qp &qp : model_.qps) {
        std::sort(qp.states.begin(), qp.states.end());
        const Session &of = model_.sessions[qp.session];
        if (qp.wire && qp.wire->baseline) {
            if (!of.from_start) {
                subtract(qp.wire->last.tx, qp.wire->baseline->tx, of.begin_ns);
                subtract(qp.wire->last.rx, qp.wire->baseline->rx, of.begin_ns);
            }
            qp.wire->baseline.reset();
        }
        if (qp.device != NONE) {
            // Most devices have one port.
            if (qp.port_number == 0 && model_.devices[qp.device].n_ports == 1)
                qp.port_number = 1;
            if (qp.port_number != 0)
                qp.port = port_of(qp.device, qp.port_number);
        }
    }
    for (Posts &posts : model_.posts) {
        const Session &of = model_.sessions[posts.session];
        if (posts.counters.baseline && !of.from_start)
            subtract(posts.counters.last, *posts.counters.baseline, of.begin_ns);
        posts.counters.baseline.reset();
    }
}

void Ingest::finish_ud() {
    for (const auto &[key, snapshots] : ud_) {
        Qp &qp = model_.qps[key.qp];
        const bool from_start = model_.sessions[qp.session].from_start;
        const UdCounts baseline = from_start ? UdCounts{} : snapshots.baseline;
        UdPeer peer;
        peer.dgid = key.dgid;
        peer.dest_qpn = key.dest_qpn;
        peer.tx_frames = subtract_or_zero(snapshots.last.frames, baseline.frames);
        peer.tx_wire_bytes = subtract_or_zero(snapshots.last.wire_bytes, baseline.wire_bytes);
        peer.tx_payload_bytes =
            subtract_or_zero(snapshots.last.payload_bytes, baseline.payload_bytes);
        if (from_start) {
            peer.first_ns = snapshots.first_ns;
            peer.first_tx_wire_bytes = snapshots.first_wire_bytes;
        }
        qp.ud_peers.push_back(std::move(peer));
    }
    for (Qp &qp : model_.qps)
        std::sort(qp.ud_peers.begin(), qp.ud_peers.end(), [](const UdPeer &a, const UdPeer &b) {
            return std::tie(a.dgid, a.dest_qpn) < std::tie(b.dgid, b.dest_qpn);
        });
}

Model Ingest::take() {
    finish_sessions();
    finish_qps();
    finish_ud();
    model_.nccl.gathered = nccl_.take();
    Model taken = std::move(model_);
    *this = Ingest{};
    return taken;
}

} // namespace collwire::model
