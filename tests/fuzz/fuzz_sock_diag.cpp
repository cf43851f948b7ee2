// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "userspace/netlink/sock_diag.h"
#include "userspace/sources/socket_bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    std::vector<collwire::netlink::SockDiagMessage> messages;
    (void)collwire::netlink::parse_sock_diag(std::as_bytes(std::span(data, size)), messages);
    collwire::sources::SocketBytes bytes(size % 2 == 0);
    for (const collwire::netlink::SockDiagMessage &message : messages) {
        if (message.socket)
            (void)bytes.update(*message.socket);
    }
    return 0;
}
