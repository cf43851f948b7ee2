// SPDX-License-Identifier: Apache-2.0
#include "userspace/netlink/sock_diag.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

namespace collwire::netlink {
namespace {

constexpr timeval ANSWER_TIMEOUT{.tv_sec = 10, .tv_usec = 0};
constexpr std::size_t DATAGRAM_BYTES = 64UL * 1024;
// All answers, some 2 KiB each in the kernel's accounting, are queued before one is read.
constexpr std::size_t QUESTIONS_AT_ONCE = 32;
constexpr std::size_t ANSWER_BYTES = 8192;
constexpr int ANSWERS_BUFFER_BYTES = 1 << 20;
// 26,000 notices: all those at the end of a large job.
constexpr int NOTICES_BUFFER_BYTES = 16 << 20;
constexpr std::string_view NOTICES = "notifications of closed TCP sockets";
constexpr std::size_t MOST_NOTICES_AT_ONCE = 100'000;

// Not LISTEN, and not TIME_WAIT and NEW_SYN_RECV, which may be many and have no counters.
constexpr std::uint32_t WITH_A_PEER =
    1U << 1 | 1U << 2 | 1U << 3 | 1U << 4 | 1U << 5 | 1U << 8 | 1U << 9 | 1U << 11;

constexpr std::array<std::uint8_t, 12> MAPPED{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

ErrorKind kind_of(int code) {
    switch (code) {
    case EPERM:
    case EACCES:
        return ErrorKind::NotPermitted;
    case ENOENT: // no inet_diag, or no tcp_diag
    case EPROTONOSUPPORT:
    case EAFNOSUPPORT:
        return ErrorKind::Unsupported;
    default:
        return ErrorKind::Failed;
    }
}

Error failed(std::string_view what, int code) {
    return error(kind_of(code), std::string(what) + ": " + std::strerror(code));
}

// The kernel copies as much of struct tcp_info as it has.
template <typename T> std::optional<T> field(SockDiagBytes info, std::size_t offset) {
    T value{};
    if (info.size() < offset + sizeof(value))
        return std::nullopt;
    std::memcpy(&value, info.data() + offset, sizeof(value));
    return value;
}

// Without libnl: its headers and the kernel's declare struct tcp_info in different ways.
std::optional<SockDiagBytes> attribute(SockDiagBytes list, int type) {
    nlattr head{};
    while (list.size() >= sizeof(head)) {
        std::memcpy(&head, list.data(), sizeof(head));
        if (head.nla_len < sizeof(head) || head.nla_len > list.size())
            break;
        if ((head.nla_type & NLA_TYPE_MASK) == type)
            return list.subspan(sizeof(head), head.nla_len - sizeof(head));
        list = list.subspan(std::min<std::size_t>(NLA_ALIGN(head.nla_len), list.size()));
    }
    return std::nullopt;
}

TcpInfo read_info(SockDiagBytes bytes) {
    TcpInfo info;
    info.state = field<std::uint8_t>(bytes, offsetof(tcp_info, tcpi_state)).value_or(0);
    info.unacked_segments = field<std::uint32_t>(bytes, offsetof(tcp_info, tcpi_unacked));
    info.timeouts = field<std::uint8_t>(bytes, offsetof(tcp_info, tcpi_retransmits));
    info.mss_bytes = field<std::uint32_t>(bytes, offsetof(tcp_info, tcpi_snd_mss));
    info.rtt_us = field<std::uint32_t>(bytes, offsetof(tcp_info, tcpi_rtt));
    info.retransmitted_segments =
        field<std::uint32_t>(bytes, offsetof(tcp_info, tcpi_total_retrans));
    info.acked_bytes = field<std::uint64_t>(bytes, offsetof(tcp_info, tcpi_bytes_acked));
    info.received_bytes = field<std::uint64_t>(bytes, offsetof(tcp_info, tcpi_bytes_received));
    info.sent_segments = field<std::uint32_t>(bytes, offsetof(tcp_info, tcpi_segs_out));
    info.received_segments = field<std::uint32_t>(bytes, offsetof(tcp_info, tcpi_segs_in));
    info.unsent_bytes = field<std::uint32_t>(bytes, offsetof(tcp_info, tcpi_notsent_bytes));
    info.received_data_segments =
        field<std::uint32_t>(bytes, offsetof(tcp_info, tcpi_data_segs_in));
    info.sent_bytes = field<std::uint64_t>(bytes, offsetof(tcp_info, tcpi_bytes_sent));
    info.retransmitted_bytes = field<std::uint64_t>(bytes, offsetof(tcp_info, tcpi_bytes_retrans));
    return info;
}

std::array<std::uint8_t, 16> address_of(std::uint8_t family, const __be32 (&words)[4]) {
    std::array<std::uint8_t, 16> address{};
    if (family == AF_INET) {
        std::copy(MAPPED.begin(), MAPPED.end(), address.begin());
        std::memcpy(address.data() + MAPPED.size(), &words[0], sizeof(words[0]));
    } else {
        std::memcpy(address.data(), &words[0], address.size());
    }
    return address;
}

void put_address(std::uint8_t family, const std::array<std::uint8_t, 16> &address,
                 __be32 (&words)[4]) {
    if (family == AF_INET)
        std::memcpy(&words[0], address.data() + MAPPED.size(), sizeof(words[0]));
    else
        std::memcpy(&words[0], address.data(), address.size());
}

// The bytes after struct nlmsghdr.
std::optional<TcpSocket> read_socket(SockDiagBytes bytes) {
    inet_diag_msg message{};
    if (bytes.size() < sizeof(message))
        return std::nullopt;
    std::memcpy(&message, bytes.data(), sizeof(message));
    TcpSocket socket;
    socket.id.family = message.idiag_family;
    socket.id.local_address = address_of(message.idiag_family, message.id.idiag_src);
    socket.id.remote_address = address_of(message.idiag_family, message.id.idiag_dst);
    socket.id.local_port = ntohs(message.id.idiag_sport);
    socket.id.remote_port = ntohs(message.id.idiag_dport);
    socket.id.interface = message.id.idiag_if;
    socket.id.cookie =
        message.id.idiag_cookie[0] | static_cast<std::uint64_t>(message.id.idiag_cookie[1]) << 32;
    socket.state = message.idiag_state;
    socket.inode = message.idiag_inode;
    socket.unread_bytes = message.idiag_rqueue;
    if (const auto info = attribute(bytes.subspan(sizeof(message)), INET_DIAG_INFO))
        socket.info = read_info(*info);
    return socket;
}

int errno_in(SockDiagBytes bytes) {
    const int status = field<int>(bytes, 0).value_or(0);
    return status < 0 && status > -4096 ? -status : 0;
}

int new_socket() {
    return ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
}

// A socket belongs to the network namespace of the thread that makes it.
Result<SockDiagSocket> socket_in(int namespace_fd) {
    constexpr std::string_view what = "socket diagnosis";
    int fd = -1;
    int code = 0;
    bool entered = true;
    if (namespace_fd < 0) {
        fd = new_socket();
        code = errno;
    } else {
        // The thread blocks all signals, or the process's own handling would miss them.
        sigset_t all;
        sigset_t before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        try {
            std::thread visitor([&] {
                entered = setns(namespace_fd, CLONE_NEWNET) == 0;
                fd = entered ? new_socket() : -1;
                code = errno;
            });
            visitor.join();
        } catch (const std::system_error &no_thread) {
            entered = false;
            code = no_thread.code().value();
        }
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
    if (!entered)
        return failed("entering the network namespace", code);
    if (fd < 0)
        return failed(what, code);
    SockDiagSocket made(fd);
    if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &ANSWER_TIMEOUT, sizeof(ANSWER_TIMEOUT)) != 0)
        return failed(what, errno);
    return made;
}

// As much as permitted: without CAP_NET_ADMIN the system's limit holds.
void set_buffer(int fd, int bytes) {
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)) != 0)
        static_cast<void>(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)));
}

struct Question {
    nlmsghdr header;
    inet_diag_req_v2 request;
};
static_assert(sizeof(Question) % NLMSG_ALIGNTO == 0);

Question question(std::uint8_t family, std::uint16_t flags, std::uint32_t sequence) {
    Question made{};
    made.header.nlmsg_len = sizeof(made);
    made.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    made.header.nlmsg_flags = static_cast<__u16>(NLM_F_REQUEST | flags);
    made.header.nlmsg_seq = sequence;
    made.request.sdiag_family = family;
    made.request.sdiag_protocol = IPPROTO_TCP;
    return made;
}

Question question_for(const TcpSocketId &id, std::uint32_t sequence) {
    Question made = question(id.family, 0, sequence);
    inet_diag_sockid &to = made.request.id;
    made.request.idiag_ext = 1U << (INET_DIAG_INFO - 1);
    made.request.idiag_states = ~0U;
    put_address(id.family, id.local_address, to.idiag_src);
    put_address(id.family, id.remote_address, to.idiag_dst);
    to.idiag_sport = htons(id.local_port);
    to.idiag_dport = htons(id.remote_port);
    to.idiag_if = id.interface;
    to.idiag_cookie[0] = static_cast<__u32>(id.cookie);
    to.idiag_cookie[1] = static_cast<__u32>(id.cookie >> 32);
    return made;
}

// errno, 0 if everything was sent.
int send_all(int fd, const void *bytes, std::size_t size) {
    sockaddr_nl kernel{};
    kernel.nl_family = AF_NETLINK;
    for (;;) {
        const ssize_t sent =
            sendto(fd, bytes, size, 0, reinterpret_cast<const sockaddr *>(&kernel), sizeof(kernel));
        if (sent >= 0)
            return static_cast<std::size_t>(sent) == size ? 0 : EIO;
        if (errno != EINTR)
            return errno;
    }
}

// The number of bytes, or -errno. Messages of other senders are ignored.
ssize_t receive(int fd, std::vector<std::byte> &buffer, int flags) {
    for (;;) {
        sockaddr_nl from{};
        socklen_t from_size = sizeof(from);
        const ssize_t size = recvfrom(fd, buffer.data(), buffer.size(), flags,
                                      reinterpret_cast<sockaddr *>(&from), &from_size);
        if (size < 0 && errno == EINTR)
            continue;
        if (size >= 0 && from.nl_pid != 0)
            continue;
        return size < 0 ? -errno : size;
    }
}

} // namespace

SockDiagSocket::SockDiagSocket(SockDiagSocket &&other) noexcept
    : fd_(std::exchange(other.fd_, -1)) {}

SockDiagSocket &SockDiagSocket::operator=(SockDiagSocket &&other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
}

SockDiagSocket::~SockDiagSocket() {
    if (fd_ >= 0)
        close(fd_);
}

Result<void> parse_sock_diag(SockDiagBytes datagram, std::vector<SockDiagMessage> &messages) {
    while (!datagram.empty()) {
        nlmsghdr header{};
        if (datagram.size() < sizeof(header))
            return error(ErrorKind::BadInput, "socket diagnosis: a message without its header");
        std::memcpy(&header, datagram.data(), sizeof(header));
        if (header.nlmsg_len < sizeof(header) || header.nlmsg_len > datagram.size())
            return error(ErrorKind::BadInput, "socket diagnosis: incomplete message");
        const SockDiagBytes body =
            datagram.subspan(sizeof(header), header.nlmsg_len - sizeof(header));
        SockDiagMessage message;
        message.sequence = header.nlmsg_seq;
        switch (header.nlmsg_type) {
        case NLMSG_DONE:
            message.done = true;
            message.error = errno_in(body);
            messages.push_back(message);
            break;
        case NLMSG_ERROR:
            message.error = errno_in(body);
            messages.push_back(message);
            break;
        case SOCK_DIAG_BY_FAMILY:
            message.socket = read_socket(body);
            if (!message.socket)
                return error(ErrorKind::BadInput, "socket diagnosis: incomplete socket");
            messages.push_back(message);
            break;
        default:
            break;
        }
        datagram =
            datagram.subspan(std::min<std::size_t>(NLMSG_ALIGN(header.nlmsg_len), datagram.size()));
    }
    return {};
}

Result<SockDiag> SockDiag::open(int namespace_fd) {
    auto socket = socket_in(namespace_fd);
    if (!socket)
        return std::move(socket).failure();
    set_buffer(socket->fd(), ANSWERS_BUFFER_BYTES);
    return SockDiag(std::move(socket).value());
}

Result<void> SockDiag::check() {
    return dump(AF_INET, 0, [](const TcpSocket &) {});
}

Result<void> SockDiag::list(std::uint8_t family,
                            const std::function<void(const TcpSocket &)> &each) {
    return dump(family, WITH_A_PEER, each);
}

Result<void> SockDiag::dump(std::uint8_t family, std::uint32_t states,
                            const std::function<void(const TcpSocket &)> &each) {
    constexpr std::string_view what = "list of TCP sockets";
    Question asked = question(family, NLM_F_DUMP, ++sequence_);
    asked.request.idiag_states = states;
    if (const int code = send_all(socket_.fd(), &asked, sizeof(asked)); code != 0)
        return failed(what, code);
    buffer_.resize(DATAGRAM_BYTES);
    for (;;) {
        const ssize_t size = receive(socket_.fd(), buffer_, 0);
        if (size < 0)
            return failed(what, static_cast<int>(-size));
        messages_.clear();
        auto parsed = parse_sock_diag({buffer_.data(), static_cast<std::size_t>(size)}, messages_);
        if (!parsed)
            return parsed;
        for (const SockDiagMessage &message : messages_) {
            if (message.sequence != sequence_)
                continue;
            if (message.error != 0)
                return failed(what, message.error);
            if (message.done)
                return {};
            if (message.socket)
                each(*message.socket);
        }
    }
}

Result<void> SockDiag::read(std::span<const TcpSocketId> ids,
                            const std::function<void(std::size_t, const TcpSocket *)> &each) {
    for (std::size_t first = 0; first < ids.size(); first += QUESTIONS_AT_ONCE) {
        const std::size_t n = std::min(QUESTIONS_AT_ONCE, ids.size() - first);
        if (auto asked = ask_some(ids.subspan(first, n), first, each); !asked)
            return asked;
    }
    return {};
}

// The kernel answers all questions of a datagram before it takes the next, so no wait is needed.
Result<void> SockDiag::ask_some(std::span<const TcpSocketId> ids, std::size_t first,
                                const std::function<void(std::size_t, const TcpSocket *)> &each) {
    constexpr std::string_view what = "counters of TCP sockets";
    std::array<Question, QUESTIONS_AT_ONCE> questions;
    const std::uint32_t begin = sequence_ + 1;
    for (std::size_t i = 0; i < ids.size(); ++i)
        questions[i] = question_for(ids[i], ++sequence_);
    if (const int code = send_all(socket_.fd(), questions.data(), ids.size() * sizeof(Question));
        code != 0)
        return failed(what, code);
    buffer_.resize(std::max(buffer_.size(), ANSWER_BYTES));
    for (std::size_t left = ids.size(); left > 0;) {
        const ssize_t size = receive(socket_.fd(), buffer_, MSG_DONTWAIT);
        if (size == -ENOBUFS)
            continue;
        if (size == -EAGAIN)
            break;
        if (size < 0)
            return failed(what, static_cast<int>(-size));
        messages_.clear();
        auto parsed = parse_sock_diag({buffer_.data(), static_cast<std::size_t>(size)}, messages_);
        if (!parsed)
            return parsed;
        for (const SockDiagMessage &message : messages_) {
            const std::uint32_t index = message.sequence - begin;
            if (index >= ids.size()) // of an abandoned question
                continue;
            left -= left > 0 ? 1 : 0;
            // ESTALE: the addresses belong to another socket by now.
            if (message.error == ENOENT || message.error == ESTALE)
                each(first + index, nullptr);
            else if (message.socket)
                each(first + index, &*message.socket);
        }
    }
    return {};
}

Result<TcpEndNotices> TcpEndNotices::open(int namespace_fd) {
    auto socket = socket_in(namespace_fd);
    if (!socket)
        return std::move(socket).failure();
    set_buffer(socket->fd(), NOTICES_BUFFER_BYTES);
    // A socket without a port id gets no notices, and no error either.
    sockaddr_nl own{};
    own.nl_family = AF_NETLINK;
    if (bind(socket->fd(), reinterpret_cast<const sockaddr *>(&own), sizeof(own)) != 0)
        return failed(NOTICES, errno);
    for (const int group : {SKNLGRP_INET_TCP_DESTROY, SKNLGRP_INET6_TCP_DESTROY}) {
        if (setsockopt(socket->fd(), SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof(group)) !=
            0)
            return failed(NOTICES, errno);
    }
    return TcpEndNotices(std::move(socket).value());
}

Result<TcpEndNotices::Taken>
TcpEndNotices::take(const std::function<void(const TcpSocket &)> &each) {
    Taken taken;
    buffer_.resize(ANSWER_BYTES);
    while (taken.notices < MOST_NOTICES_AT_ONCE) {
        const ssize_t size = receive(socket_.fd(), buffer_, MSG_DONTWAIT);
        if (size == -EAGAIN)
            break;
        if (size == -ENOBUFS) {
            taken.lost = true;
            continue;
        }
        if (size < 0)
            return failed(NOTICES, static_cast<int>(-size));
        ++taken.notices;
        messages_.clear();
        auto parsed = parse_sock_diag({buffer_.data(), static_cast<std::size_t>(size)}, messages_);
        if (!parsed)
            return std::move(parsed).failure();
        for (const SockDiagMessage &message : messages_) {
            if (message.socket)
                each(*message.socket);
        }
    }
    return taken;
}

void TcpEndNotices::wait(int timeout_ms) const {
    pollfd ready{socket_.fd(), POLLIN, 0};
    static_cast<void>(poll(&ready, 1, timeout_ms));
}

} // namespace collwire::netlink
