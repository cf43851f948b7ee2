// SPDX-License-Identifier: Apache-2.0
// A TCP connection from this process to itself, and what a source writes of it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "collwire/socket_records.h"
#include "userspace/source/source.h"

namespace collwire::test {

class Fd {
public:
    explicit Fd(int fd = -1) : fd_(fd) {}
    Fd(Fd &&other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
    Fd &operator=(Fd &&other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    Fd(const Fd &) = delete;
    Fd &operator=(const Fd &) = delete;
    ~Fd() { reset(); }
    void reset() {
        if (fd_ >= 0)
            close(fd_);
        fd_ = -1;
    }
    [[nodiscard]] int get() const { return fd_; }
    [[nodiscard]] std::uint32_t number() const { return static_cast<std::uint32_t>(fd_); }

private:
    int fd_;
};

enum class Addresses { Ipv4, Ipv6, Ipv4ByIpv6 };

// A socket that listens at a port that the kernel chooses, and its address as others reach it.
struct Listener {
    explicit Listener(Addresses kind = Addresses::Ipv4)
        : fd(socket(kind == Addresses::Ipv4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in v4{};
        v4.sin_family = AF_INET;
        v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        sockaddr_in6 v6{};
        v6.sin6_family = AF_INET6;
        if (kind == Addresses::Ipv6)
            v6.sin6_addr = in6addr_loopback;
        size = kind == Addresses::Ipv4 ? sizeof(v4) : sizeof(v6);
        std::memcpy(&address, kind == Addresses::Ipv4 ? static_cast<void *>(&v4) : &v6, size);
        is_there = bind(fd.get(), generic(), size) == 0 && listen(fd.get(), 4096) == 0 &&
                   getsockname(fd.get(), generic(), &size) == 0;
        if (kind == Addresses::Ipv4ByIpv6) {
            std::memcpy(&v6, &address, sizeof(v6));
            v4.sin_port = v6.sin6_port;
            size = sizeof(v4);
            std::memcpy(&address, &v4, size);
        }
    }
    sockaddr *generic() { return reinterpret_cast<sockaddr *>(&address); }

    Fd fd;
    sockaddr_storage address{};
    socklen_t size = 0;
    bool is_there = false;
};

struct TcpPair {
    explicit TcpPair(Listener &listener)
        : connected(socket(listener.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        if (connect(connected.get(), listener.generic(), listener.size) == 0)
            accepted = Fd(accept4(listener.fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
    }
    [[nodiscard]] bool is_there() const { return accepted.get() >= 0; }

    // All of it is read by the other end, too.
    static void move(const Fd &from, const Fd &to, std::size_t bytes) {
        std::vector<char> buffer(std::min<std::size_t>(bytes, 1 << 16));
        for (std::size_t left = bytes; left > 0;) {
            const ssize_t n = send(from.get(), buffer.data(), std::min(left, buffer.size()), 0);
            ASSERT_GT(n, 0);
            std::size_t unread = static_cast<std::size_t>(n);
            left -= unread;
            while (unread > 0) {
                const ssize_t got = recv(to.get(), buffer.data(), unread, 0);
                ASSERT_GT(got, 0);
                unread -= static_cast<std::size_t>(got);
            }
        }
    }

    Fd connected;
    Fd accepted;
};

// All that was written to it is at the other end, whose kernel has said so.
inline void wait_until_acknowledged(const Fd &from) {
    constexpr int TRIES = 60'000;
    int unacknowledged = 1;
    for (int i = 0; i < TRIES && unacknowledged != 0; ++i) {
        ASSERT_EQ(ioctl(from.get(), SIOCOUTQ, &unacknowledged), 0);
        if (unacknowledged != 0)
            usleep(1000);
    }
    EXPECT_EQ(unacknowledged, 0);
}

struct TcpRecords {
    [[nodiscard]] std::optional<cw_tcp_socket> last_of(std::uint32_t fd) const {
        std::optional<cw_tcp_socket> last;
        for (const cw_tcp_socket &record : all) {
            if (record.fd == fd)
                last = record;
        }
        return last;
    }
    [[nodiscard]] bool has_end_of(std::uint32_t fd) const {
        const auto last = last_of(fd);
        return last && (last->flags & CW_TCP_SOCKET_GONE) != 0;
    }

    std::vector<cw_tcp_socket> all;
};

// What one more sample of a source writes is added.
inline void sample_into(TcpRecords &records, source::Source &source, bool everything = false) {
    class Sink : public source::RecordSink {
    public:
        explicit Sink(TcpRecords &to) : to_(to) {}
        void append(const cw_header &record) override {
            ASSERT_EQ(record.kind, CW_KIND_TCP_SOCKET);
            ASSERT_EQ(record.length_bytes, sizeof(cw_tcp_socket));
            ASSERT_EQ(record.cpu, CW_CPU_USERSPACE);
            to_.all.push_back(reinterpret_cast<const cw_tcp_socket &>(record));
        }

    private:
        TcpRecords &to_;
    };
    Sink sink(records);
    source.sample(sink, everything);
}

} // namespace collwire::test
