// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/account_control.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <vector>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_connection_records.h"
#include "collwire/wire_records.h"
#include "correlate/nccl/link_meter.h"

namespace collwire::nccl {

using model::add_known;
using model::add_saturating;
using model::BytesRung;
using model::Model;
using model::Qp;
using model::subtract_or_zero;

Sent sent_by(const Qp &qp) {
    if (qp.bytes.rung == BytesRung::Wire) {
        if (!qp.wire)
            return {0, 0};
        const cw_wire_direction &tx = qp.wire->last.tx;
        return {tx.payload_bytes[CW_WIRE_REQUEST],
                add_saturating(tx.wire_bytes[CW_WIRE_REQUEST], tx.wire_bytes[CW_WIRE_RETRANSMIT])};
    }
    if (qp.bytes.rung == BytesRung::None)
        return {};
    Sent sent{qp.bytes.tx_payload_bytes, qp.bytes.tx_wire_bytes};
    if (sent.wire_bytes)
        sent.wire_bytes =
            subtract_or_zero(*sent.wire_bytes, qp.bytes.tx_response_wire_bytes.value_or(0));
    return sent;
}

namespace {

class ControlAccountant {
public:
    explicit ControlAccountant(Model &model) : model_(model), nccl_(model.nccl) {}

    void run() {
        for (const Link &link : nccl_.links)
            if (link.is_send() && link.lacks_queue_pairs() && link.attributed_bytes != 0)
                lack_queue_pairs_.insert({link.session, link.tgid});
        for (const Link &link : nccl_.links) {
            if (link.is_send())
                add_rest(link);
            else
                add_received(link);
        }
        for (Index index = 0; index < model_.qps.size(); ++index)
            add_qp(model_.qps[index], nccl_.qps[index]);
        add_other_sockets();
        add_closed_sockets();
    }

private:
    void add_total(Rung rung, ByteSource source, std::uint64_t bytes) {
        nccl_.totals.is_known = true;
        std::uint64_t &of_rung = nccl_.totals.by_rung[static_cast<std::size_t>(rung)];
        std::uint64_t &of_source = nccl_.totals.by_source[static_cast<std::size_t>(source)];
        of_rung = add_saturating(of_rung, bytes);
        of_source = add_saturating(of_source, bytes);
    }

    // Bytes of no operation.
    void add_rest(const Link &link) {
        if (!link.is_followed())
            return;
        if (link.source == ByteSource::None) {
            ++nccl_.totals.links_not_measured;
            return;
        }
        // Its queue pairs are known from the other end only: one of these may be its.
        if (link.is_mirrored && lack_queue_pairs_.contains({link.session, link.tgid})) {
            add_known(nccl_.totals.perhaps_counted_bytes, link.measured_bytes);
            return;
        }
        const std::uint64_t headers =
            add_saturating(link.greeting_bytes, link.attributed_header_bytes);
        std::uint64_t unowned_bytes = 0;
        for (const Interval &interval : link.intervals) {
            const std::uint64_t excess =
                subtract_or_zero(interval.measured_bytes, interval.derived_bytes);
            if (interval.kind != IntervalKind::Excess)
                continue;
            if (interval.n_ops == 0 || interval.is_first)
                unowned_bytes = add_saturating(unowned_bytes, excess);
        }
        if (!link.sockets.empty())
            add_known(nccl_.control.socket_header_bytes, headers);
        const std::uint64_t rest =
            subtract_or_zero(subtract_or_zero(link.measured_bytes, link.attributed_bytes),
                             link.sockets.empty() ? 0 : headers);
        unowned_bytes = std::min(unowned_bytes, rest);
        add_total(Rung::Process, link.source, unowned_bytes);
        // A plugin may send more than NCCL hands it. For an assumed flow only the communicator is
        // known.
        const bool is_plugins = link.transport == CW_NCCL_TRANSPORT_PLUGIN;
        add_total(is_plugins || link.is_assumed ? Rung::Process
                                                : std::min(link.rung, Rung::Inferred),
                  link.source, rest - unowned_bytes);
        Known wire_bytes = link.wire_bytes;
        if (wire_bytes)
            wire_bytes = subtract_or_zero(*wire_bytes, link.attributed_wire_bytes);
        if (rest != 0 && !is_plugins)
            add_to_own_ranks(link, rest, wire_bytes);
    }

    // If only one communicator can own them.
    void add_to_own_ranks(const Link &link, std::uint64_t payload_bytes, const Known &wire_bytes) {
        if (link.instances.size() != 1)
            return;
        const Instance &instance = nccl_.instances[link.instances.front()];
        if (instance.is_shared())
            return;
        if (link.is_send()) {
            add_to_matrix(nccl_, link, instance.comm, link.rank, link.peer, payload_bytes,
                          wire_bytes);
            return;
        }
        const topology::Tier tier =
            link.qps.empty() ? topology::Tier::Unknown : model_.qps[link.qps.front()].tier;
        MatrixCell &cell =
            nccl_.matrix[{instance.comm, link.peer, link.rank, link.transport, tier}];
        cell.add(payload_bytes, wire_bytes);
    }

    // The sender is in no capture, so the received bytes are the only measurement.
    void add_received(const Link &link) {
        Known payload_bytes;
        Known wire_bytes;
        for (const Index index : link.qps) {
            const Qp &qp = model_.qps[index];
            if (qp.peer != NONE || qp.bytes.rung != BytesRung::Wire || !qp.wire)
                return;
            add_known(payload_bytes, qp.wire->last.rx.payload_bytes[CW_WIRE_REQUEST]);
            add_known(wire_bytes, qp.wire->last.rx.wire_bytes[CW_WIRE_REQUEST]);
        }
        if (payload_bytes.value_or(0) != 0)
            add_to_own_ranks(link, *payload_bytes, wire_bytes);
    }

    void add_qp(const Qp &qp, const QpIdentity &identity) {
        if (!identity.is_of_nccl || identity.role == Role::None)
            return;
        const Sent sent = sent_by(qp);
        Control &control = nccl_.control;
        add_known(control.ack_wire_bytes, qp.bytes.tx_ack_wire_bytes);
        if (identity.role == Role::ClearToSend) {
            add_known(control.clear_to_send_payload_bytes, sent.payload_bytes);
            add_known(control.clear_to_send_wire_bytes, sent.wire_bytes);
        } else if (identity.role == Role::Flush) {
            add_known(control.flush_payload_bytes, sent.payload_bytes);
            add_known(control.flush_wire_bytes, sent.wire_bytes);
        } else if (identity.role == Role::Other && sent.payload_bytes) {
            if (lack_queue_pairs_.contains({qp.session, qp.tgid}))
                return add_known(nccl_.totals.perhaps_counted_bytes, sent.payload_bytes);
            add_total(Rung::Process,
                      qp.bytes.rung == BytesRung::Wire ? ByteSource::Wire : ByteSource::Posted,
                      *sent.payload_bytes);
        }
    }

    void add_other_sockets() {
        std::set<Index> of_links;
        for (const Link &link : nccl_.links)
            of_links.insert(link.sockets.begin(), link.sockets.end());
        for (Index index = 0; index < nccl_.gathered.sockets.size(); ++index) {
            const Socket &socket = nccl_.gathered.sockets[index];
            if (of_links.contains(index) || model_.sessions[socket.session].excluded ||
                socket.acked.size() == 0)
                continue;
            add_known(nccl_.control.other_socket_bytes,
                      socket.acked.at(socket.acked.size() - 1).payload_bytes);
        }
    }

    void add_closed_sockets() {
        std::vector<ClosedSocket> &closed = nccl_.gathered.closed_sockets;
        // A file may be given twice. Without its time, an inode may be another socket's.
        std::sort(closed.begin(), closed.end());
        closed.erase(std::unique(closed.begin(), closed.end()), closed.end());
        std::set<std::tuple<Index, std::uint32_t, std::uint64_t>> watched;
        for (const Socket &socket : nccl_.gathered.sockets)
            watched.emplace(socket.session, socket.tgid, socket.last.inode);
        for (const ClosedSocket &socket : closed) {
            const model::Session &session = model_.sessions[socket.session];
            if (session.excluded || (session.ended && socket.time_ns > session.end_ns) ||
                watched.contains({socket.session, socket.tgid, socket.inode}))
                continue;
            ControlSockets &sum = nccl_.control.sockets[socket.type];
            ++sum.sockets;
            sum.payload_bytes = add_saturating(sum.payload_bytes, socket.sent_bytes);
        }
    }

    Model &model_;
    NcclFacts &nccl_;
    // Sessions and processes with counted connections of which some queue pairs were not found.
    std::set<std::pair<Index, std::uint32_t>> lack_queue_pairs_;
};

} // namespace

std::array<std::pair<std::uint64_t, std::uint64_t>, model::TIERS>
by_tier(const Link &link, std::uint64_t payload_bytes, std::uint64_t wire_bytes) {
    std::array<std::pair<std::uint64_t, std::uint64_t>, model::TIERS> parts{};
    std::uint64_t whole = 0;
    for (const auto &[tier, bytes] : link.tiers)
        whole = add_saturating(whole, bytes);
    if (link.tiers.size() <= 1 || whole == 0) {
        const topology::Tier tier =
            link.tiers.empty() ? topology::Tier::Unknown : link.tiers.front().first;
        parts[model::index_of(tier)] = {payload_bytes, wire_bytes};
        return parts;
    }
    // The last one gets the rounding remainder.
    std::uint64_t payload_left = payload_bytes;
    std::uint64_t wire_left = wire_bytes;
    for (std::size_t i = 0; i < link.tiers.size(); ++i) {
        const auto &[tier, bytes] = link.tiers[i];
        const bool is_last = i + 1 == link.tiers.size();
        const std::uint64_t payload =
            is_last ? payload_left
                    : std::min(payload_left, part_of(payload_bytes, bytes, whole, true));
        const std::uint64_t wire =
            is_last ? wire_left : std::min(wire_left, part_of(wire_bytes, bytes, whole, true));
        parts[model::index_of(tier)].first += payload;
        parts[model::index_of(tier)].second += wire;
        payload_left -= payload;
        wire_left -= wire;
    }
    return parts;
}

void MatrixCell::add(std::uint64_t payload, const Known &wire) {
    payload_bytes = add_saturating(payload_bytes, payload);
    lacks_wire_bytes = lacks_wire_bytes || !wire;
    if (lacks_wire_bytes)
        wire_bytes.reset();
    else
        add_known(wire_bytes, wire);
}

void add_to_matrix(NcclFacts &nccl, const Link &link, Index comm, std::int32_t source,
                   std::int32_t destination, std::uint64_t payload_bytes, const Known &wire_bytes) {
    const auto parts = by_tier(link, payload_bytes, wire_bytes.value_or(0));
    for (std::size_t tier = 0; tier < model::TIERS; ++tier) {
        if (parts[tier].first == 0)
            continue;
        MatrixCell &cell = nccl.matrix[{comm, source, destination, link.transport,
                                        static_cast<topology::Tier>(tier)}];
        cell.add(parts[tier].first, wire_bytes ? Known(parts[tier].second) : std::nullopt);
    }
}

void account_control(Model &model) {
    ControlAccountant(model).run();
}

} // namespace collwire::nccl
