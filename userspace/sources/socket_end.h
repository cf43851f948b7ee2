// SPDX-License-Identifier: Apache-2.0
// The last counters of a socket as the kernel program reads them (bpf/socket_ends.bpf.c), in the
// form of an answer of NETLINK_SOCK_DIAG.
#pragma once

#include "collwire/recorder_records.h"
#include "userspace/netlink/sock_diag.h"
#include "userspace/sources/socket_bytes.h"

namespace collwire::sources {

// With the state before the end, and without a cookie.
[[nodiscard]] netlink::TcpSocket socket_of(const cw_tcp_socket_end &end);

// Its own FIN counts as acknowledged if it was sent and nothing is left to acknowledge: the kernel
// sends it after all data (tcp_send_fin).
[[nodiscard]] SocketFins fins_of(const cw_tcp_socket_end &end);

} // namespace collwire::sources
