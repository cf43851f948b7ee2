// SPDX-License-Identifier: Apache-2.0
#include "userspace/sources/socket_bytes.h"

#include <algorithm>

namespace collwire::sources {
namespace {

bool is_one_of(std::uint8_t state, std::initializer_list<netlink::TcpState> states) {
    return std::any_of(states.begin(), states.end(), [state](netlink::TcpState each) {
        return state == static_cast<std::uint8_t>(each);
    });
}

std::uint64_t less(std::uint64_t value, std::uint64_t by) {
    return value > by ? value - by : 0;
}

// A FIN is the last of what is to be sent: it is in there as long as there is anything.
std::uint64_t unsent(const netlink::TcpInfo &info) {
    const bool fin = is_one_of(info.state, {netlink::TcpState::FinWait1, netlink::TcpState::LastAck,
                                            netlink::TcpState::Closing});
    return less(info.unsent_bytes.value_or(0), fin ? 1 : 0);
}

} // namespace

SocketPayload SocketBytes::update(const netlink::TcpSocket &socket) {
    SocketPayload payload;
    if (!socket.info)
        return payload;
    const netlink::TcpInfo &info = *socket.info;
    payload.acked_bytes = acked(info);
    payload.received_bytes = received(socket, info);
    payload.unsent_bytes = unsent(info);
    return payload;
}

SocketPayload SocketBytes::end(const netlink::TcpSocket &socket, SocketFins fins) {
    SocketPayload payload;
    if (!socket.info)
        return payload;
    const netlink::TcpInfo &info = *socket.info;
    payload.acked_bytes = acked_at_end(info, fins.sent);
    payload.received_bytes = less(info.received_bytes.value_or(0), fins.received ? 1 : 0);
    payload.unsent_bytes = unsent(info);
    return payload;
}

// More is acknowledged than was sent: the SYN.
std::uint64_t SocketBytes::acked_at_end(const netlink::TcpInfo &info, bool with_fin) {
    const std::uint64_t counted = less(info.acked_bytes.value_or(0), with_fin ? 1 : 0);
    const std::uint64_t sent =
        less(info.sent_bytes.value_or(0), info.retransmitted_bytes.value_or(0));
    const bool at_rest = info.unacked_segments.value_or(0) == 0;
    if (!known_end_ && info.sent_bytes && (counted == sent + 1 || (at_rest && counted == sent)))
        connected_ = counted == sent + 1;
    return less(counted, connected_ ? 1 : 0);
}

// The end that connected has its SYN in there, the other has not.
std::uint64_t SocketBytes::acked(const netlink::TcpInfo &info) {
    const std::uint64_t counted = info.acked_bytes.value_or(0);
    const bool fin_acked =
        is_one_of(info.state, {netlink::TcpState::FinWait2, netlink::TcpState::TimeWait});
    const std::uint64_t syn = connected_ ? 1 : 0;
    if (!info.sent_bytes || !info.retransmitted_bytes || !info.unacked_segments)
        return less(counted, syn + (fin_acked ? 1 : 0));

    const std::uint64_t sent = less(*info.sent_bytes, *info.retransmitted_bytes);
    const bool at_rest = *info.unacked_segments == 0;
    if (is_one_of(info.state, {netlink::TcpState::Established, netlink::TcpState::CloseWait})) {
        // No FIN of ours. More is acknowledged than was sent: the SYN.
        if (!known_end_ && (counted == sent + 1 || (at_rest && counted == sent))) {
            known_end_ = true;
            connected_ = counted == sent + 1;
        }
        const std::uint64_t payload = less(counted, connected_ ? 1 : 0);
        if (at_rest)
            refused_bytes_ = std::max(refused_bytes_, less(sent, payload));
        return payload;
    }
    if (fin_acked)
        return less(counted, syn + 1);
    // In CLOSE the FIN may be in there. No more payload is acknowledged than was sent.
    if (!known_end_ && at_rest && counted >= sent && counted <= sent + 2)
        return sent;
    return std::min(less(counted, syn), less(sent, refused_bytes_));
}

std::uint64_t SocketBytes::received(const netlink::TcpSocket &socket,
                                    const netlink::TcpInfo &info) {
    const std::uint64_t counted = info.received_bytes.value_or(0);
    if (is_one_of(info.state, {netlink::TcpState::CloseWait, netlink::TcpState::LastAck,
                               netlink::TcpState::Closing, netlink::TcpState::TimeWait}))
        fin_received_ = true;
    // In CLOSE it may be in there. It is if it was not read, or if it came without a segment of
    // data.
    if (info.state == static_cast<std::uint8_t>(netlink::TcpState::Close) && !fin_received_)
        fin_received_ =
            socket.unread_bytes == 1 ||
            (last_received_bytes_ && info.received_data_segments == last_data_segments_ &&
             counted == *last_received_bytes_ + 1);
    last_received_bytes_ = counted;
    last_data_segments_ = info.received_data_segments;
    return less(counted, fin_received_ ? 1 : 0);
}

} // namespace collwire::sources
