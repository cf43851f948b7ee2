// SPDX-License-Identifier: Apache-2.0
// The payload of a TCP socket. The kernel's counters are of sequence numbers in places: SYN and FIN
// are a byte each, and its last ones do not say which of them are in there.
#pragma once

#include <cstdint>
#include <optional>

#include "userspace/netlink/sock_diag.h"

namespace collwire::sources {

struct SocketPayload {
    std::uint64_t acked_bytes = 0;
    std::uint64_t received_bytes = 0;
    std::uint64_t unsent_bytes = 0;
};

// The FINs in the last counters of a socket.
struct SocketFins {
    bool sent = false; // and acknowledged
    bool received = false;
};

class SocketBytes {
public:
    // `connected`: which end it is supposed to be until its counters show it.
    explicit SocketBytes(bool connected) : connected_(connected) {}

    // Each reading of one socket, in order.
    SocketPayload update(const netlink::TcpSocket &socket);
    // The last one: `socket` with the state before its end.
    SocketPayload end(const netlink::TcpSocket &socket, SocketFins fins);

private:
    [[nodiscard]] std::uint64_t acked_at_end(const netlink::TcpInfo &info, bool with_fin);
    [[nodiscard]] std::uint64_t acked(const netlink::TcpInfo &info);
    [[nodiscard]] std::uint64_t received(const netlink::TcpSocket &socket,
                                         const netlink::TcpInfo &info);

    bool connected_;
    bool known_end_ = false;
    // Sent, refused by a queue of this node, and sent again: `sent_bytes` counts it twice.
    std::uint64_t refused_bytes_ = 0;
    bool fin_received_ = false;
    std::optional<std::uint64_t> last_received_bytes_;
    std::optional<std::uint32_t> last_data_segments_;
};

} // namespace collwire::sources
