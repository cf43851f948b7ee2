// SPDX-License-Identifier: Apache-2.0
// What the kernel says of the queue pairs and sockets of connections.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "collwire/nccl_connection_records.h"
#include "correlate/inspect/inspection.h"
#include "userspace/netlink/attributes.h"
#include "userspace/netlink/sock_diag.h"

namespace collwire::inspect {

// Of one connection, as its records name them, without what the kernel says.
std::vector<Endpoint> endpoints_of(const std::vector<const cw_nccl_connection *> &records);

// The queue pairs of this network namespace. Each costs hardware a firmware command of some 100 us.
class QueuePairs {
public:
    void look();
    void add(const std::string &device, const netlink::NetlinkQp &qp);
    // Device, port, state and peer of the one of this number that belongs to the process; nothing
    // where two devices of it have one.
    void describe(std::uint32_t pid, Endpoint &endpoint) const;
    // Of those that belong to the process.
    [[nodiscard]] std::unordered_set<std::uint32_t> numbers_of(std::uint32_t pid) const;

private:
    struct Known {
        std::string device, state;
        std::uint32_t port = 0;
        std::optional<std::uint32_t> remote_qpn;
        std::optional<std::uint32_t> tid; // of the thread that made it; none: it has ended
    };
    std::multimap<std::uint32_t, Known> known_; // by number
};

// The TCP sockets of one network namespace that have an inode of `wanted`.
struct SocketLook {
    std::map<std::uint64_t, netlink::TcpSocket> sockets; // by inode
};
SocketLook look_at_sockets(std::uint32_t pid, const std::vector<std::uint64_t> &wanted);

void describe_socket(const SocketLook &before, const SocketLook &now, Endpoint &endpoint);

} // namespace collwire::inspect
