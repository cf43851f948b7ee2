// SPDX-License-Identifier: Apache-2.0
#include "userspace/sources/socket_record.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "collwire/record_kinds.h"

namespace collwire::sources {
namespace {

bool is_ipv4(const netlink::TcpSocketId &id) {
    constexpr std::array<std::uint8_t, 12> MAPPED{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return std::equal(MAPPED.begin(), MAPPED.end(), id.remote_address.begin());
}

cw_tcp_socket counters_of(cw_tcp_socket record) {
    record.header = {};
    record.rtt_us = 0;
    record.mss_bytes = 0;
    return record;
}

} // namespace

cw_tcp_socket new_record(const netlink::TcpSocketId &id, std::uint64_t inode, std::uint64_t netns,
                         SocketOwner owner) {
    cw_tcp_socket record{};
    record.header = {sizeof(record), CW_KIND_TCP_SOCKET, CW_CPU_USERSPACE, 0};
    record.inode = inode;
    record.netns = netns;
    record.tgid = owner.tgid;
    record.fd = owner.fd;
    static_assert(sizeof(record.local_address) == sizeof(id.local_address));
    std::memcpy(record.local_address, id.local_address.data(), sizeof(record.local_address));
    std::memcpy(record.remote_address, id.remote_address.data(), sizeof(record.remote_address));
    record.local_port = id.local_port;
    record.remote_port = id.remote_port;
    record.flags = is_ipv4(id) ? static_cast<std::uint32_t>(CW_TCP_SOCKET_IPV4) : 0U;
    return record;
}

void set_counters(cw_tcp_socket &record, const netlink::TcpInfo &info,
                  const SocketPayload &payload) {
    record.acked_bytes = payload.acked_bytes;
    record.received_bytes = payload.received_bytes;
    record.unsent_bytes = payload.unsent_bytes;
    record.sent_bytes = info.sent_bytes.value_or(0);
    record.retransmitted_bytes = info.retransmitted_bytes.value_or(0);
    record.sent_segments = info.sent_segments.value_or(0);
    record.received_segments = info.received_segments.value_or(0);
    record.retransmitted_segments = info.retransmitted_segments.value_or(0);
    record.rtt_us = info.rtt_us.value_or(0);
    record.mss_bytes = info.mss_bytes.value_or(0);
    record.state = info.state;
}

bool has_same_counters(const cw_tcp_socket &a, const cw_tcp_socket &b) {
    const cw_tcp_socket one = counters_of(a);
    const cw_tcp_socket other = counters_of(b);
    return std::memcmp(&one, &other, sizeof(one)) == 0;
}

} // namespace collwire::sources
