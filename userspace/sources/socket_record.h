// SPDX-License-Identifier: Apache-2.0
// The record of a TCP socket from an answer of the kernel.
#pragma once

#include <cstdint>

#include "collwire/socket_records.h"
#include "userspace/netlink/sock_diag.h"
#include "userspace/sources/socket_bytes.h"

namespace collwire::sources {

// A socket's owner: a descriptor of a process.
struct SocketOwner {
    std::uint32_t tgid = 0;
    std::uint32_t fd = 0;
};

// Without time and counters. `netns`: the inode of its network namespace.
[[nodiscard]] cw_tcp_socket new_record(const netlink::TcpSocketId &id, std::uint64_t inode,
                                       std::uint64_t netns, SocketOwner owner);

// Unknown counters are 0.
void set_counters(cw_tcp_socket &record, const netlink::TcpInfo &info,
                  const SocketPayload &payload);

// But for those that change with each reading and say nothing by themselves.
[[nodiscard]] bool has_same_counters(const cw_tcp_socket &a, const cw_tcp_socket &b);

} // namespace collwire::sources
