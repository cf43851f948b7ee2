// SPDX-License-Identifier: Apache-2.0
#include "correlate/wire/overhead.h"

#include <utility>

namespace collwire::wire {
namespace {

constexpr std::uint64_t ETHERNET_BYTES = 14, VLAN_BYTES = 4, IPV4_BYTES = 20, IPV6_BYTES = 40,
                        UDP_BYTES = 8, LRH_BYTES = 8, GRH_BYTES = 40, BTH_BYTES = 12,
                        ICRC_BYTES = 4, VCRC_BYTES = 2;
constexpr std::uint64_t RETH_BYTES = 16, IMMEDIATE_BYTES = 4, IETH_BYTES = 4, AETH_BYTES = 4,
                        DETH_BYTES = 8, XRCETH_BYTES = 4, ATOMIC_ETH_BYTES = 28,
                        ATOMIC_ACK_ETH_BYTES = 8, FETH_BYTES = 4;
constexpr std::uint8_t QP_TYPE_SMI = 0, QP_TYPE_GSI = 1, QP_TYPE_UD = 4, QP_TYPE_XRC_INI = 9;

std::optional<std::size_t> mtu_class_of(std::uint32_t mtu_bytes) {
    for (std::size_t i = 0; i < CW_MTU_CLASSES; ++i)
        if (mtu_bytes == 256u << i)
            return i;
    return std::nullopt;
}

// A sum that records an overflow beyond 64 bits.
class OverflowSum {
public:
    void add(std::uint64_t n, std::uint64_t each = 1) {
        std::uint64_t product = 0;
        overflow_ = __builtin_mul_overflow(n, each, &product) ||
                    __builtin_add_overflow(value_, product, &value_) || overflow_;
    }
    [[nodiscard]] std::uint64_t value() const { return value_; }
    [[nodiscard]] bool overflow() const { return overflow_; }

private:
    std::uint64_t value_ = 0;
    bool overflow_ = false;
};

// Extended headers of the request.
struct RequestHeaders {
    cw_post_class post_class;
    std::uint64_t per_message_bytes;
};
constexpr RequestHeaders MESSAGES[] = {
    {CW_POST_SEND, 0},
    {CW_POST_SEND_IMM, IMMEDIATE_BYTES},
    {CW_POST_SEND_INV, IETH_BYTES},
    {CW_POST_WRITE, RETH_BYTES},
    {CW_POST_WRITE_IMM, RETH_BYTES + IMMEDIATE_BYTES},
    {CW_POST_ATOMIC_WRITE, RETH_BYTES},
};

} // namespace

std::uint64_t packet_overhead_bytes(const WirePath &path) {
    const std::uint64_t transport_bytes = BTH_BYTES + ICRC_BYTES;
    const std::uint64_t ethernet_bytes = ETHERNET_BYTES + (path.vlan ? VLAN_BYTES : 0);
    switch (path.protocol) {
    case WireProtocol::RoceV2Ipv4:
        return ethernet_bytes + IPV4_BYTES + UDP_BYTES + transport_bytes;
    case WireProtocol::RoceV2Ipv6:
        return ethernet_bytes + IPV6_BYTES + UDP_BYTES + transport_bytes;
    case WireProtocol::RoceV1:
        return ethernet_bytes + GRH_BYTES + transport_bytes;
    case WireProtocol::InfiniBand:
        break;
    }
    return LRH_BYTES + (path.grh ? GRH_BYTES : 0) + transport_bytes + VCRC_BYTES;
}

std::optional<PostedWire> posted_wire(const cw_post_counters &posts, const WirePath &path) {
    const auto mtu = mtu_class_of(path.path_mtu_bytes);
    if (!mtu || posts.classes[CW_POST_OTHER].wrs != 0)
        return std::nullopt;
    const std::uint64_t packet_bytes = packet_overhead_bytes(path);
    std::uint64_t request_packet_bytes = packet_bytes;
    if (path.qp_type == QP_TYPE_UD || path.qp_type == QP_TYPE_GSI || path.qp_type == QP_TYPE_SMI)
        request_packet_bytes += DETH_BYTES;
    if (path.qp_type == QP_TYPE_XRC_INI)
        request_packet_bytes += XRCETH_BYTES;

    OverflowSum request_frames;
    OverflowSum request_bytes;
    for (const RequestHeaders &headers : MESSAGES) {
        const cw_post_class_counters &c = posts.classes[headers.post_class];
        request_frames.add(c.packets[*mtu]);
        request_bytes.add(c.packets[*mtu], request_packet_bytes);
        request_bytes.add(c.wrs, headers.per_message_bytes);
        request_bytes.add(c.bytes);
        request_bytes.add(c.pad_bytes);
    }
    const cw_post_class_counters &reads = posts.classes[CW_POST_READ];
    const std::uint64_t n_reads = reads.wrs;
    const std::uint64_t atomics = posts.classes[CW_POST_ATOMIC].wrs;
    const std::uint64_t flushes = posts.classes[CW_POST_FLUSH].wrs;
    const std::uint64_t atomic_writes = posts.classes[CW_POST_ATOMIC_WRITE].wrs;
    for (const auto &[n, headers_bytes] :
         {std::pair{n_reads, RETH_BYTES}, std::pair{atomics, ATOMIC_ETH_BYTES},
          std::pair{flushes, FETH_BYTES + RETH_BYTES}}) {
        request_frames.add(n);
        request_bytes.add(n, request_packet_bytes + headers_bytes);
    }

    OverflowSum response_frames;
    OverflowSum response_bytes;
    response_frames.add(reads.packets[*mtu]);
    response_bytes.add(reads.packets[*mtu], packet_bytes);
    response_bytes.add(n_reads, AETH_BYTES);
    response_bytes.add(posts.multi_packet_reads[*mtu], AETH_BYTES);
    response_bytes.add(reads.bytes);
    response_bytes.add(reads.pad_bytes);
    response_frames.add(atomics);
    response_bytes.add(atomics, packet_bytes + AETH_BYTES + ATOMIC_ACK_ETH_BYTES);
    // Both are answered with an empty READ response.
    for (const std::uint64_t n : {flushes, atomic_writes}) {
        response_frames.add(n);
        response_bytes.add(n, packet_bytes + AETH_BYTES);
    }
    if (request_frames.overflow() || request_bytes.overflow() || response_frames.overflow() ||
        response_bytes.overflow())
        return std::nullopt;
    return PostedWire{request_frames.value(), request_bytes.value(), response_frames.value(),
                      response_bytes.value()};
}

} // namespace collwire::wire
