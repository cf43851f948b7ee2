// SPDX-License-Identifier: Apache-2.0
// Computes the wire bytes of posted work requests: payload and every header.
//
// Per packet (InfiniBand Architecture Specification 1.5, chapter 9, and annexes A16 and A17 for
// RoCE):
//   RoCE v2      Ethernet 14 + IPv4 20 or IPv6 40 + UDP 8 + BTH 12 + extended headers + payload +
//                padding to 4 + ICRC 4; no preamble, no FCS
//   RoCE v1      Ethernet 14 + GRH 40 + BTH 12 + ... + ICRC 4
//   InfiniBand   LRH 8 [+ GRH 40] + BTH 12 + ... + ICRC 4 + VCRC 2
// Extended headers: RETH 16 on the first packet of a WRITE and on a READ request, ImmDt 4 or IETH 4
// on the last packet, AtomicETH 28, AETH 4 on the first and last packet of a READ response,
// AtomicAckETH 8, FETH 4, DETH 8 on every packet of a datagram, XRCETH 4 on every request of XRC.
// A message of n bytes is max(1, ceil(n / path MTU)) packets, padded in its last one.
#pragma once

#include <cstdint>
#include <optional>

#include "collwire/post_records.h"

namespace collwire::wire {

enum class WireProtocol { RoceV2Ipv4, RoceV2Ipv6, RoceV1, InfiniBand };

struct WirePath {
    WireProtocol protocol = WireProtocol::RoceV2Ipv4;
    bool grh = false;                 // InfiniBand only: a global routing header
    bool vlan = false;                // Ethernet only: one 802.1Q tag of 4 bytes
    std::uint32_t path_mtu_bytes = 0; // 256, 512, 1024, 2048 or 4096
    std::uint8_t qp_type = 0xff;      // as cw_qp_event::qp_type
};

// Without retransmissions, and without the acknowledgements of SEND and WRITE, whose number is up
// to the responder.
struct PostedWire {
    std::uint64_t request_frames = 0; // that the queue pair sends
    std::uint64_t request_bytes = 0;
    std::uint64_t response_frames =
        0; // that its peer answers READ, ATOMIC, ATOMIC WRITE and FLUSH with
    std::uint64_t response_bytes = 0;
};

// Absent if the sizes are unknown: an invalid path MTU, work requests that are not RDMA
// (cw_post_class OTHER), iWARP, or counters that no driver can have reached.
std::optional<PostedWire> posted_wire(const cw_post_counters &posts, const WirePath &path);

// Headers and trailers of a packet without extended headers, in bytes.
std::uint64_t packet_overhead_bytes(const WirePath &path);

} // namespace collwire::wire
