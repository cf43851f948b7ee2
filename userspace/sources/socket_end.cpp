// SPDX-License-Identifier: Apache-2.0
#include "userspace/sources/socket_end.h"

#include <algorithm>
#include <array>

#include <sys/socket.h>

namespace collwire::sources {

netlink::TcpSocket socket_of(const cw_tcp_socket_end &end) {
    netlink::TcpSocket socket;
    std::copy_n(end.local_address, socket.id.local_address.size(), socket.id.local_address.begin());
    std::copy_n(end.remote_address, socket.id.remote_address.size(),
                socket.id.remote_address.begin());
    socket.id.local_port = end.local_port;
    socket.id.remote_port = end.remote_port;
    netlink::TcpInfo info;
    info.state = static_cast<std::uint8_t>(end.state);
    info.unacked_segments = end.unacked_segments;
    info.mss_bytes = end.mss_bytes;
    info.rtt_us = end.rtt_us;
    info.retransmitted_segments = end.retransmitted_segments;
    info.acked_bytes = end.acked_bytes;
    info.received_bytes = end.received_bytes;
    info.sent_segments = end.sent_segments;
    info.received_segments = end.received_segments;
    info.unsent_bytes = end.unsent_bytes;
    info.sent_bytes = end.sent_bytes;
    info.retransmitted_bytes = end.retransmitted_bytes;
    socket.state = info.state;
    socket.info = info;
    return socket;
}

SocketFins fins_of(const cw_tcp_socket_end &end) {
    constexpr std::array SENT{netlink::TcpState::FinWait1, netlink::TcpState::FinWait2,
                              netlink::TcpState::TimeWait, netlink::TcpState::LastAck,
                              netlink::TcpState::Closing};
    const auto state = static_cast<netlink::TcpState>(end.state);
    const bool is_sent = std::find(SENT.begin(), SENT.end(), state) != SENT.end();
    return {is_sent && end.unacked_bytes == 0, end.fin_received != 0};
}

} // namespace collwire::sources
