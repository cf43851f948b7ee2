// SPDX-License-Identifier: Apache-2.0
// Frame sizes: InfiniBand Architecture Specification 9.2 to 9.4 and annex A17 (RoCE v2).
#include "correlate/model/posted.h"

#include <algorithm>

#include "collwire/roce.h"

namespace collwire::model {

namespace {

constexpr std::uint64_t LRH_BYTES = 8, GRH_BYTES = 40, VCRC_BYTES = 2;
constexpr std::uint64_t RETH_BYTES = 16, IMMEDIATE_BYTES = 4, AETH_BYTES = 4, IETH_BYTES = 4,
                        DETH_BYTES = 8, FETH_BYTES = 4, XRCETH_BYTES = 4, ATOMIC_ETH_BYTES = 28,
                        ATOMIC_ACK_ETH_BYTES = 8;
constexpr std::uint64_t ATOMIC_BYTES = 8;
constexpr std::uint8_t QPT_XRC_INI = 9;

// What every frame has: link header to BTH, ICRC and, on InfiniBand, VCRC.
Known frame_bytes(const Qp &qp, const Port *port, bool &assumed_ipv4) {
    constexpr std::uint64_t roce_v2 =
        CW_ETHERNET_BYTES + CW_UDP_BYTES + CW_BTH_BYTES + CW_ICRC_BYTES;
    if (port != nullptr && port->link_layer == CW_LINK_INFINIBAND)
        return LRH_BYTES + (qp.has(CW_QP_GRH) ? GRH_BYTES : 0) + CW_BTH_BYTES + CW_ICRC_BYTES +
               VCRC_BYTES;
    if (port == nullptr || port->link_layer != CW_LINK_ETHERNET)
        return std::nullopt;
    if (qp.has(CW_QP_SGID) && qp.address.gid_type == CW_GID_ROCE_V1)
        return CW_ETHERNET_BYTES + GRH_BYTES + CW_BTH_BYTES + CW_ICRC_BYTES;
    if (!qp.is_datagram()) {
        if (!qp.has(CW_QP_ADDRESS))
            return std::nullopt;
        return roce_v2 + (is_ipv4_mapped(qp.dgid()) ? CW_IPV4_BYTES : CW_IPV6_BYTES);
    }
    // The address is in each work request, which is not looked into.
    assumed_ipv4 = std::any_of(port->gids.begin(), port->gids.end(), is_ipv4_mapped);
    return assumed_ipv4 ? Known(roce_v2 + CW_IPV4_BYTES) : std::nullopt;
}

// Index of packets[]; CW_MTU_CLASSES: not known.
std::size_t mtu_class(const Qp &qp) {
    return qp.path_mtu_bytes() == 0 ? CW_MTU_CLASSES : qp.address.path_mtu - std::size_t{1};
}

// Headers of each message, beside those of each frame.
std::uint64_t request_header_bytes(std::size_t post_class) {
    switch (post_class) {
    case CW_POST_SEND_IMM:
        return IMMEDIATE_BYTES;
    case CW_POST_SEND_INV:
        return IETH_BYTES;
    case CW_POST_WRITE:
    case CW_POST_READ:
    case CW_POST_ATOMIC_WRITE:
        return RETH_BYTES;
    case CW_POST_WRITE_IMM:
        return RETH_BYTES + IMMEDIATE_BYTES;
    case CW_POST_ATOMIC:
        return ATOMIC_ETH_BYTES;
    case CW_POST_FLUSH:
        return FETH_BYTES + RETH_BYTES;
    default:
        return 0;
    }
}

bool carries_payload(std::size_t post_class) {
    return post_class <= CW_POST_WRITE_IMM || post_class == CW_POST_ATOMIC_WRITE;
}

class Frames {
public:
    Frames(const Qp &qp, std::uint64_t frame_bytes) : qp_(qp), frame_bytes_(frame_bytes) {
        if (qp.is_datagram())
            frame_bytes_ += DETH_BYTES;
        if (qp.type == QPT_XRC_INI)
            frame_bytes_ += XRCETH_BYTES;
    }

    [[nodiscard]] std::uint64_t requests(std::size_t post_class,
                                         const cw_post_class_counters &posts) const {
        const bool many = carries_payload(post_class) && !qp_.is_datagram();
        std::uint64_t bytes = multiply_saturating(many ? packets(posts) : posts.wrs, frame_bytes_);
        bytes =
            add_saturating(bytes, multiply_saturating(posts.wrs, request_header_bytes(post_class)));
        if (carries_payload(post_class))
            bytes = add_saturating(bytes, add_saturating(posts.bytes, posts.pad_bytes));
        return bytes;
    }

    // READ: an AETH in the first and in the last frame of each answer. Which answers have only one
    // frame is not in the counts; where all have the same length this is exact, else it may be 4
    // bytes an answer too high.
    [[nodiscard]] std::uint64_t read_answers(const cw_post_class_counters &posts) const {
        const std::uint64_t in_several =
            std::min<std::uint64_t>(posts.wrs, subtract_or_zero(packets(posts), posts.wrs));
        const std::uint64_t aeths = add_saturating(posts.wrs, in_several);
        return add_saturating(add_saturating(multiply_saturating(packets(posts), frame_bytes_),
                                             multiply_saturating(aeths, AETH_BYTES)),
                              add_saturating(posts.bytes, posts.pad_bytes));
    }

    [[nodiscard]] std::uint64_t atomic_answers(const cw_post_class_counters &posts) const {
        return multiply_saturating(posts.wrs, frame_bytes_ + AETH_BYTES + ATOMIC_ACK_ETH_BYTES);
    }

private:
    [[nodiscard]] std::uint64_t packets(const cw_post_class_counters &posts) const {
        return posts.packets[mtu_class(qp_)];
    }

    const Qp &qp_;
    std::uint64_t frame_bytes_;
};

void add_wire_bytes(PostedBytes &bytes, const Qp &qp, const Port *port,
                    const cw_post_counters &posts) {
    if (posts.classes[CW_POST_OTHER].wrs != 0)
        return; // nobody knows what they are on the wire
    const Known each = frame_bytes(qp, port, bytes.assumed_ipv4);
    if (!each || (!qp.is_datagram() && mtu_class(qp) == CW_MTU_CLASSES)) {
        // Nothing posted is nothing sent, whatever the headers.
        const bool none = std::all_of(std::begin(posts.classes), std::end(posts.classes),
                                      [](const auto &of_class) { return of_class.wrs == 0; });
        if (none)
            bytes.request_wire_bytes = bytes.response_wire_bytes = 0;
        return;
    }
    const Frames frames(qp, *each);
    std::uint64_t requests = 0;
    for (std::size_t i = 0; i < CW_POST_LOCAL; ++i)
        requests = add_saturating(requests, frames.requests(i, posts.classes[i]));
    bytes.request_wire_bytes = requests;
    if (qp.is_datagram())
        bytes.response_wire_bytes = 0;
    else
        bytes.response_wire_bytes =
            add_saturating(frames.read_answers(posts.classes[CW_POST_READ]),
                           frames.atomic_answers(posts.classes[CW_POST_ATOMIC]));
}

} // namespace

PostedBytes posted_bytes(const Qp &qp, const Port *port, const cw_post_counters &posts) {
    PostedBytes bytes;
    for (std::size_t i = 0; i < CW_POST_CLASSES; ++i)
        if (carries_payload(i))
            bytes.tx_payload_bytes = add_saturating(bytes.tx_payload_bytes, posts.classes[i].bytes);
    bytes.read_payload_bytes =
        add_saturating(posts.classes[CW_POST_READ].bytes,
                       multiply_saturating(posts.classes[CW_POST_ATOMIC].wrs, ATOMIC_BYTES));
    add_wire_bytes(bytes, qp, port, posts);
    return bytes;
}

} // namespace collwire::model
