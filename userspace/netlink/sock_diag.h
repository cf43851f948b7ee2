// SPDX-License-Identifier: Apache-2.0
// The kernel's counters of TCP sockets, from its NETLINK_SOCK_DIAG family. Queries need no
// privilege and change nothing; only another network namespace needs CAP_SYS_ADMIN.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"

namespace collwire::netlink {

// The identity of a socket in its network namespace.
struct TcpSocketId {
    std::uint8_t family = 0;                      // AF_INET, AF_INET6
    std::array<std::uint8_t, 16> local_address{}; // IPv4 as ::ffff:a.b.c.d
    std::array<std::uint8_t, 16> remote_address{};
    std::uint16_t local_port = 0; // host byte order
    std::uint16_t remote_port = 0;
    std::uint32_t interface = 0; // bound to this interface; 0: none
    // The kernel's own number of the socket, never reused. It outlives the inode: a socket that its
    // program has closed has no inode any more, and still sends.
    std::uint64_t cookie = 0;
};

// From the kernel's net/tcp_states.h, the states in use here.
enum class TcpState : std::uint8_t {
    Established = 1,
    FinWait1 = 4,
    FinWait2 = 5,
    TimeWait = 6,
    Close = 7,
    CloseWait = 8,
    LastAck = 9,
    Closing = 11,
};

// From struct tcp_info, which grew over the years: a field beyond this kernel's answer is absent,
// not 0.
struct TcpInfo {
    std::uint8_t state = 0;
    std::optional<std::uint32_t> unacked_segments;
    std::optional<std::uint8_t> timeouts; // in a row, of one segment (tcpi_retransmits)
    std::optional<std::uint32_t> mss_bytes;
    std::optional<std::uint32_t> rtt_us;
    std::optional<std::uint32_t> retransmitted_segments;
    std::optional<std::uint64_t> acked_bytes;    // Linux 4.1; with one for SYN and one for FIN
    std::optional<std::uint64_t> received_bytes; // 4.1; with one for FIN
    std::optional<std::uint32_t> sent_segments;
    std::optional<std::uint32_t> received_segments;
    std::optional<std::uint32_t> unsent_bytes;
    std::optional<std::uint32_t> received_data_segments;
    std::optional<std::uint64_t> sent_bytes; // 4.19; payload alone, retransmissions included
    std::optional<std::uint64_t> retransmitted_bytes; // 4.19
};

struct TcpSocket {
    TcpSocketId id;
    std::uint8_t state = 0;         // TIME_WAIT and similar states have no `info`
    std::uint32_t inode = 0;        // 0: closed by its program
    std::uint32_t unread_bytes = 0; // with one for an unread FIN
    std::optional<TcpInfo> info;
};

// One message of an answer.
struct SockDiagMessage {
    std::uint32_t sequence = 0;
    bool done = false; // the end of a dump
    int error = 0;     // errno of a refused question or dump
    std::optional<TcpSocket> socket;
};

using SockDiagBytes = std::span<const std::byte>;

// Appends the messages of one datagram, whose address is a multiple of 4. BadInput if their lengths
// do not fit; attributes whose length does not fit are absent.
Result<void> parse_sock_diag(SockDiagBytes datagram, std::vector<SockDiagMessage> &messages);

// A netlink socket that closes itself.
class SockDiagSocket {
public:
    explicit SockDiagSocket(int fd) : fd_(fd) {}
    SockDiagSocket(SockDiagSocket &&other) noexcept;
    SockDiagSocket &operator=(SockDiagSocket &&other) noexcept;
    SockDiagSocket(const SockDiagSocket &) = delete;
    SockDiagSocket &operator=(const SockDiagSocket &) = delete;
    ~SockDiagSocket();
    [[nodiscard]] int fd() const { return fd_; }

private:
    int fd_;
};

// Queries one network namespace, and keeps it alive during its lifetime.
class SockDiag {
public:
    // For the namespace of an open /proc/PID/ns/net; -1: that of the calling thread. A separate
    // thread enters it and ends; the caller stays in its own.
    static Result<SockDiag> open(int namespace_fd = -1);

    // Whether this kernel answers; the kernel may load its module for it.
    Result<void> check();

    // Every TCP socket of one address family that has or had a peer, without its counters. The
    // kernel walks the table of all namespaces: some 0.7 us a socket.
    Result<void> list(std::uint8_t family, const std::function<void(const TcpSocket &)> &each);

    // Queries each socket by its addresses and cookie; the cost does not depend on the number of
    // other sockets. Calls each(index, socket) for existing ones, in any state, and each(index,
    // nullptr) for missing ones. A socket without an answer is left out.
    Result<void> read(std::span<const TcpSocketId> ids,
                      const std::function<void(std::size_t, const TcpSocket *)> &each);

private:
    explicit SockDiag(SockDiagSocket socket) : socket_(std::move(socket)) {}
    Result<void> dump(std::uint8_t family, std::uint32_t states,
                      const std::function<void(const TcpSocket &)> &each);
    Result<void> ask_some(std::span<const TcpSocketId> ids, std::size_t first,
                          const std::function<void(std::size_t, const TcpSocket *)> &each);

    SockDiagSocket socket_;
    std::uint32_t sequence_ = 0;
    std::vector<std::byte> buffer_;
    std::vector<SockDiagMessage> messages_;
};

// The kernel's notices of closing TCP sockets, with their last counters, in one network namespace.
// While a listener exists, the kernel makes one for every TCP socket there: some 2 us each.
class TcpEndNotices {
public:
    // See SockDiag::open.
    static Result<TcpEndNotices> open(int namespace_fd = -1);

    struct Taken {
        std::size_t notices = 0;
        bool lost = false; // the buffer was full: some were dropped
    };
    // The queued notices; does not wait for more.
    Result<Taken> take(const std::function<void(const TcpSocket &)> &each);
    // Waits until there is one or the time is over.
    void wait(int timeout_ms) const;

private:
    explicit TcpEndNotices(SockDiagSocket socket) : socket_(std::move(socket)) {}

    SockDiagSocket socket_;
    std::vector<std::byte> buffer_;
    std::vector<SockDiagMessage> messages_;
};

} // namespace collwire::netlink
