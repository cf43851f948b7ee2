// SPDX-License-Identifier: Apache-2.0
#include "correlate/model/posted.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "collwire/node_records.h"
#include "collwire/qp_records.h"
#include "correlate/wire/overhead.h"

namespace collwire::model {

namespace {

constexpr std::uint64_t ATOMIC_BYTES = 8;
// A datagram is one packet for every path MTU, which its queue pair does not know.
constexpr std::uint32_t DATAGRAM_MTU_BYTES = 4096;

bool carries_payload(std::size_t post_class) {
    return post_class <= CW_POST_WRITE_IMM || post_class == CW_POST_ATOMIC_WRITE;
}

// Null: the address or the link is not known.
std::optional<wire::WirePath> path_of(const Qp &qp, const Port *port, bool &assumed_ipv4) {
    wire::WirePath path;
    path.qp_type = qp.type;
    path.path_mtu_bytes = qp.is_datagram() ? DATAGRAM_MTU_BYTES : qp.path_mtu_bytes();
    if (port == nullptr)
        return std::nullopt;
    if (port->link_layer == CW_LINK_INFINIBAND) {
        path.protocol = wire::WireProtocol::InfiniBand;
        path.grh = qp.has(CW_QP_GRH);
        return path;
    }
    if (port->link_layer != CW_LINK_ETHERNET)
        return std::nullopt;
    if (qp.has(CW_QP_SGID) && qp.address.gid_type == CW_GID_ROCE_V1) {
        path.protocol = wire::WireProtocol::RoceV1;
        return path;
    }
    bool ipv4 = false;
    if (qp.is_datagram()) {
        // The address is in each work request, which is not read.
        assumed_ipv4 = std::any_of(port->gids.begin(), port->gids.end(), is_ipv4_mapped);
        if (!assumed_ipv4)
            return std::nullopt;
        ipv4 = true;
    } else {
        if (!qp.has(CW_QP_ADDRESS))
            return std::nullopt;
        ipv4 = is_ipv4_mapped(qp.dgid());
    }
    path.protocol = ipv4 ? wire::WireProtocol::RoceV2Ipv4 : wire::WireProtocol::RoceV2Ipv6;
    return path;
}

void add_wire_bytes(PostedBytes &bytes, const Qp &qp, const Port *port,
                    const cw_post_counters &posts) {
    // No posts means nothing sent, with any headers.
    const bool none = std::all_of(std::begin(posts.classes), std::end(posts.classes),
                                  [](const auto &of_class) { return of_class.wrs == 0; });
    if (none) {
        bytes.request_wire_bytes = bytes.response_wire_bytes = 0;
        return;
    }
    const auto path = path_of(qp, port, bytes.assumed_ipv4);
    const auto wire = path ? posted_wire(posts, *path) : std::nullopt;
    if (!wire)
        return;
    bytes.request_wire_bytes = wire->request_bytes;
    bytes.response_wire_bytes = wire->response_bytes;
}

} // namespace

std::uint64_t posted_payload_bytes(const cw_post_counters &posts) {
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < CW_POST_CLASSES; ++i)
        if (carries_payload(i))
            bytes = add_saturating(bytes, posts.classes[i].bytes);
    return bytes;
}

std::optional<MessageHeaders> message_headers(const Qp &qp, const Port *port, bool has_immediate) {
    // Empty messages of one and of two packets.
    Known wire_bytes[2];
    for (std::size_t i = 0; i < std::size(wire_bytes); ++i) {
        cw_post_counters posts = {};
        cw_post_class_counters &of =
            posts.classes[has_immediate ? CW_POST_WRITE_IMM : CW_POST_WRITE];
        of.wrs = 1;
        std::fill(std::begin(of.packets), std::end(of.packets), i + 1);
        wire_bytes[i] = posted_bytes(qp, port, posts).request_wire_bytes;
    }
    if (!wire_bytes[0] || !wire_bytes[1])
        return std::nullopt;
    const std::uint64_t packet_bytes = *wire_bytes[1] - *wire_bytes[0];
    return MessageHeaders{packet_bytes, *wire_bytes[0] - packet_bytes};
}

PostedBytes posted_bytes(const Qp &qp, const Port *port, const cw_post_counters &posts) {
    PostedBytes bytes;
    bytes.tx_payload_bytes = posted_payload_bytes(posts);
    bytes.read_payload_bytes =
        add_saturating(posts.classes[CW_POST_READ].bytes,
                       multiply_saturating(posts.classes[CW_POST_ATOMIC].wrs, ATOMIC_BYTES));
    add_wire_bytes(bytes, qp, port, posts);
    return bytes;
}

} // namespace collwire::model
