// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/account_messages.h"

#include <algorithm>

#include "collwire/nccl_connection_records.h"
#include "collwire/node_records.h"
#include "correlate/model/counters.h"
#include "correlate/model/posted.h"
#include "correlate/nccl/account_control.h"

namespace collwire::nccl {

using model::add_saturating;
using model::Model;
using model::multiply_saturating;
using model::Qp;

namespace {

// struct ncclIbSendFifo
constexpr std::uint64_t CLEAR_TO_SEND_BYTES = 64;
constexpr std::uint32_t SMALLEST_MTU_BYTES = 256;

void add(MessagePackets &sum, const MessagePackets &more) {
    sum.messages = add_saturating(sum.messages, more.messages);
    sum.with_immediate = add_saturating(sum.with_immediate, more.with_immediate);
    sum.plain = add_saturating(sum.plain, more.plain);
    sum.pad_bytes = add_saturating(sum.pad_bytes, more.pad_bytes);
    for (std::size_t i = 0; i < sum.packets.size(); ++i)
        sum.packets[i] = add_saturating(sum.packets[i], more.packets[i]);
}

// Connections of several ranks use the same queue pairs (PXN): a request of their receiver may be
// for messages of several of them.
bool is_of_several_ranks(const Model &model, const Link &link) {
    const auto &all = model.nccl.gathered.connections;
    const cw_nccl_connection &first = all[link.connections.front()].head;
    return std::ranges::any_of(link.connections, [&](Index index) {
        return all[index].head.rank != first.rank || all[index].head.peer != first.peer;
    });
}

bool was_measured_whole(const Model &model, const Link &link) {
    return link.source != ByteSource::None && !link.is_cut_short && !is_late(model, link) &&
           link.measured_from_ns == 0 && link.measured_bytes == link.attributed_bytes;
}

MessageWire wire_of(const Model &model, const Qp &qp) {
    MessageWire wire;
    wire.is_found = true;
    if (qp.port == NONE)
        return wire;
    const model::Port *port = &model.ports[qp.port];
    const auto plain = model::message_headers(qp, port, false);
    const auto with_immediate = model::message_headers(qp, port, true);
    while (wire.mtu_class < CW_MTU_CLASSES && qp.path_mtu_bytes() != SMALLEST_MTU_BYTES
                                                                         << wire.mtu_class)
        ++wire.mtu_class;
    if (!plain || !with_immediate || wire.mtu_class == CW_MTU_CLASSES)
        return wire;
    wire.is_known = true;
    wire.packet_bytes = plain->packet_bytes;
    wire.plain_bytes = plain->message_bytes;
    wire.immediate_bytes = with_immediate->message_bytes;
    return wire;
}

MessageWire find_wire(const Model &model, const Link &link) {
    MessageWire first;
    first.is_found = true;
    if (link.transport != CW_NCCL_TRANSPORT_IB || link.qps.empty() || link.is_cut_short ||
        link.is_mirrored || is_of_several_ranks(model, link))
        return first;
    // Which of several queue pairs posts a request is not followed.
    for (const Index index : link.qps) {
        const MessageWire wire = wire_of(model, model.qps[index]);
        if (!wire.is_known)
            return wire;
        if (first.is_known && wire != first)
            return {.is_found = true};
        first = wire;
    }
    return first;
}

// Without retransmissions, which follow from no message. Absent: not of all of its queue pairs, or
// with loss.
Known measured_wire_bytes(const Model &model, const Link &link) {
    Known sum;
    for (const Index index : link.qps) {
        const Qp &qp = model.qps[index];
        const Known of_qp = sent_by(qp).wire_bytes;
        if (!of_qp || !qp.damaged_by.empty())
            return std::nullopt;
        model::add_known(
            sum, model::subtract_or_zero(*of_qp, qp.bytes.retransmitted_wire_bytes.value_or(0)));
    }
    return sum;
}

std::uint64_t wire_bytes(const MessageWire &wire, const MessagePackets &packets,
                         std::uint64_t payload_bytes) {
    const std::uint64_t of_requests =
        add_saturating(multiply_saturating(packets.plain, wire.plain_bytes),
                       multiply_saturating(packets.with_immediate, wire.immediate_bytes));
    return add_saturating(
        add_saturating(payload_bytes, packets.pad_bytes),
        add_saturating(multiply_saturating(packets.packets[wire.mtu_class], wire.packet_bytes),
                       of_requests));
}

} // namespace

void note_messages(const Model &model, Link &link, const ShapeOp &op, OpShare &share) {
    if (op.packets == NONE || !share.is_known || !share.is_whole ||
        share.payload_bytes != op.payload_bytes) {
        link.lacks_packets = true;
        return;
    }
    const MessagePackets &packets = model.nccl.packets[op.packets];
    add(link.packets, packets);
    if (!link.message_wire.is_found)
        link.message_wire = find_wire(model, link);
    if (!share.wire_bytes && share.source == ByteSource::Derived && link.message_wire.is_known)
        share.wire_bytes = wire_bytes(link.message_wire, packets, op.payload_bytes);
}

void note_received(const Model &model, Link &link, const ShapeOp &op) {
    if (op.packets == NONE)
        link.lacks_packets = true;
    else
        add(link.packets, model.nccl.packets[op.packets]);
}

Known message_wire_bytes(const Model &model, const Link &link) {
    const MessageWire wire =
        link.message_wire.is_found ? link.message_wire : find_wire(model, link);
    if (!wire.is_known || link.lacks_packets)
        return std::nullopt;
    if (link.is_send())
        return wire_bytes(wire, link.packets, link.attributed_bytes);
    return multiply_saturating(link.packets.messages,
                               CLEAR_TO_SEND_BYTES + wire.packet_bytes + wire.plain_bytes);
}

void compare_messages(Model &model) {
    NcclFacts &nccl = model.nccl;
    for (Index index = 0; index < nccl.links.size(); ++index) {
        const Link &link = nccl.links[index];
        if (link.packets.messages == 0)
            continue;
        const Known measured = measured_wire_bytes(model, link);
        if (!measured || (link.is_send() ? !was_measured_whole(model, link) : is_late(model, link)))
            continue;
        MessageComparison &sums = link.is_send() ? nccl.messages.data : nccl.messages.clear_to_send;
        const Known computed = message_wire_bytes(model, link);
        if (!computed)
            sums.not_computed += link.qps.size();
        else if (*computed == *measured)
            sums.equal += link.qps.size();
        else
            sums.different.push_back({index, *measured, *computed});
        if (computed && *computed == *measured)
            sums.equal_bytes = add_saturating(sums.equal_bytes, *measured);
    }
}

} // namespace collwire::nccl
