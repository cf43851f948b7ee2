// SPDX-License-Identifier: Apache-2.0
#include "userspace/inspect/endpoints.h"

#include <algorithm>
#include <array>
#include <set>

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "correlate/capture/nccl_names.h"
#include "userspace/netlink/rdma_netlink.h"

namespace collwire::inspect {
namespace {

constexpr std::array<std::string_view, 13> TCP_STATES{
    "",      "ESTABLISHED", "SYN_SENT", "SYN_RECV", "FIN_WAIT1", "FIN_WAIT2",   "TIME_WAIT",
    "CLOSE", "CLOSE_WAIT",  "LAST_ACK", "LISTEN",   "CLOSING",   "NEW_SYN_RECV"};

std::string address_text(const std::array<std::uint8_t, 16> &address, std::uint16_t port) {
    constexpr std::array<std::uint8_t, 12> MAPPED{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (std::equal(MAPPED.begin(), MAPPED.end(), address.begin())) {
        inet_ntop(AF_INET, &address[MAPPED.size()], text.data(), text.size());
        return fmt::format("{}:{}", text.data(), port);
    }
    inet_ntop(AF_INET6, address.data(), text.data(), text.size());
    return fmt::format("[{}]:{}", text.data(), port);
}

std::optional<std::uint64_t> grown(std::optional<std::uint64_t> before,
                                   std::optional<std::uint64_t> now) {
    return before && now && *now >= *before ? std::optional{*now - *before} : std::nullopt;
}

// An open /proc/PID/ns/net if that is another one than this process's; -1: it is the same.
class NetworkNamespace {
public:
    explicit NetworkNamespace(std::uint32_t pid) {
        const std::string path = fmt::format("/proc/{}/ns/net", pid);
        struct stat own {
        }, other{};
        if (stat("/proc/self/ns/net", &own) != 0 || stat(path.c_str(), &other) != 0)
            return;
        is_known_ = true;
        if (own.st_ino != other.st_ino)
            fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
        is_known_ = own.st_ino == other.st_ino || fd_ >= 0;
    }
    NetworkNamespace(const NetworkNamespace &) = delete;
    NetworkNamespace &operator=(const NetworkNamespace &) = delete;
    ~NetworkNamespace() {
        if (fd_ >= 0)
            close(fd_);
    }
    [[nodiscard]] bool is_known() const { return is_known_; }
    [[nodiscard]] int fd() const { return fd_; }

private:
    int fd_ = -1;
    bool is_known_ = false;
};

// What RDMA netlink calls a process is the thread that made the queue pair, as long as it lives
// (rdma_restrack_attach_task, fill_res_name_pid).
bool may_have_made(std::uint32_t pid, std::optional<std::uint32_t> tid) {
    return !tid || *tid == pid ||
           access(fmt::format("/proc/{}/task/{}", pid, *tid).c_str(), F_OK) == 0;
}

} // namespace

std::vector<Endpoint> endpoints_of(const std::vector<const cw_nccl_connection *> &records) {
    std::vector<Endpoint> endpoints;
    for (const cw_nccl_connection *record : records)
        for (std::uint32_t i = 0; i < std::min<std::uint32_t>(record->n, CW_NCCL_ENDPOINTS); ++i) {
            Endpoint endpoint;
            endpoint.is_socket = record->transport == CW_NCCL_TRANSPORT_SOCKET;
            endpoint.number = record->endpoints[i].number;
            endpoint.role = capture::nccl_role_name(record->endpoints[i].role);
            endpoint.inode = record->socket_inodes[i];
            endpoints.push_back(std::move(endpoint));
        }
    return endpoints;
}

void QueuePairs::look() {
    auto netlink = netlink::RdmaNetlink::open();
    if (!netlink)
        return;
    const auto devices = netlink->devices();
    if (!devices)
        return;
    for (const netlink::NetlinkDevice &device : *devices) {
        const auto qps = netlink->dump_qps(device.dev_index);
        if (!qps)
            continue;
        for (const netlink::NetlinkQp &qp : *qps)
            add(device.name, qp);
    }
}

void QueuePairs::add(const std::string &device, const netlink::NetlinkQp &qp) {
    if (!qp.kernel_name.empty())
        return;
    known_.emplace(qp.lqpn, Known{device, std::string{netlink::qp_state_name(qp.state)},
                                  qp.port.value_or(0), qp.rqpn, qp.pid});
}

void QueuePairs::describe(std::uint32_t pid, Endpoint &endpoint) const {
    if (endpoint.is_socket)
        return;
    const Known *own = nullptr;
    const auto [begin, end] = known_.equal_range(endpoint.number);
    for (auto at = begin; at != end; ++at) {
        if (!may_have_made(pid, at->second.tid))
            continue;
        if (own != nullptr)
            return;
        own = &at->second;
    }
    if (own == nullptr)
        return;
    endpoint.device = own->device;
    endpoint.port = own->port;
    endpoint.state = own->state;
    endpoint.remote_qpn = own->remote_qpn;
}

std::unordered_set<std::uint32_t> QueuePairs::numbers_of(std::uint32_t pid) const {
    std::unordered_set<std::uint32_t> numbers;
    for (const auto &[number, known] : known_)
        if (may_have_made(pid, known.tid))
            numbers.insert(number);
    return numbers;
}

SocketLook look_at_sockets(std::uint32_t pid, const std::vector<std::uint64_t> &wanted) {
    SocketLook look;
    const NetworkNamespace ns{pid};
    if (wanted.empty() || !ns.is_known())
        return look;
    auto diag = netlink::SockDiag::open(ns.fd());
    if (!diag)
        return look;
    const std::set<std::uint64_t> inodes{wanted.begin(), wanted.end()};
    std::vector<netlink::TcpSocketId> ids;
    for (const int family : {AF_INET, AF_INET6})
        (void)diag->list(static_cast<std::uint8_t>(family), [&](const netlink::TcpSocket &socket) {
            if (inodes.contains(socket.inode))
                ids.push_back(socket.id);
        });
    (void)diag->read(ids, [&](std::size_t, const netlink::TcpSocket *socket) {
        if (socket != nullptr && socket->inode != 0)
            look.sockets.insert_or_assign(socket->inode, *socket);
    });
    return look;
}

void describe_socket(const SocketLook &before, const SocketLook &now, Endpoint &endpoint) {
    const auto found = now.sockets.find(endpoint.inode);
    if (!endpoint.is_socket || endpoint.inode == 0 || found == now.sockets.end())
        return;
    const netlink::TcpSocket &socket = found->second;
    endpoint.local = address_text(socket.id.local_address, socket.id.local_port);
    endpoint.remote = address_text(socket.id.remote_address, socket.id.remote_port);
    if (socket.state < TCP_STATES.size())
        endpoint.state = TCP_STATES[socket.state];
    endpoint.unread_bytes = socket.unread_bytes;
    if (!socket.info)
        return;
    endpoint.unsent_bytes = socket.info->unsent_bytes;
    endpoint.unacked_segments = socket.info->unacked_segments;
    endpoint.timeouts = socket.info->timeouts;
    const auto then = before.sockets.find(endpoint.inode);
    if (then == before.sockets.end() || !then->second.info)
        return;
    const netlink::TcpInfo &first = *then->second.info;
    endpoint.acked_bytes = grown(first.acked_bytes, socket.info->acked_bytes);
    endpoint.received_bytes = grown(first.received_bytes, socket.info->received_bytes);
    endpoint.retransmitted_bytes =
        grown(first.retransmitted_bytes, socket.info->retransmitted_bytes);
}

} // namespace collwire::inspect
