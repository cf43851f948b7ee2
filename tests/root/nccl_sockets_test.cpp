// SPDX-License-Identifier: Apache-2.0
// The program on a socket that NCCL closes: what it carried, against what this process wrote.
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "collwire/loss_records.h"
#include "collwire/record_kinds.h"
#include "collwire/socket_records.h"
#include "tests/root/nccl_programs.h"
#include "tests/support/tcp_pair.h"
#include "userspace/loader/unread_records.h"

namespace collwire::test {
namespace {

// As a build numbers them that is none.
constexpr std::uint32_t UNKNOWN = 0, NET_SOCKET = 3, BOOTSTRAP = 5, PROXY = 6;

// Fewer where the machine is emulated.
constexpr unsigned ROUNDS = 1500;
constexpr std::uint64_t LONGEST_NS = 10'000'000'000;

class NcclSockets : public NcclPrograms {
protected:
    void SetUp() override {
        NcclPrograms::SetUp();
        layout_.socket_type = offsetof(Socket, type);
        std::memset(layout_.socket_types, 0, sizeof(layout_.socket_types));
        layout_.socket_types[BOOTSTRAP] = CW_NCCL_SOCKET_BOOTSTRAP;
        layout_.socket_types[PROXY] = CW_NCCL_SOCKET_PROXY;
    }

    // The record when NCCL closes it.
    std::vector<cw_nccl_socket> closing(int fd, std::uint32_t type = BOOTSTRAP) {
        if (link_ == nullptr)
            load();
        if (link_ == nullptr)
            return {};
        records_.clear();
        Socket socket{.fd = fd, .type = type};
        EXPECT_EQ(nccl_programs_test_start(&socket), 0);
        (void)ring_->consume();
        EXPECT_EQ(records_.size(), emitted<cw_nccl_socket>(CW_KIND_NCCL_SOCKET).size());
        return emitted<cw_nccl_socket>(CW_KIND_NCCL_SOCKET);
    }
    // The same, while another thread ends the stream of `end` at a moment that depends on `round`.
    std::vector<cw_nccl_socket> closing_while_it_ends(const TcpPair &pair, const Fd &end,
                                                      unsigned round) {
        const auto pause = [round](unsigned parity) {
            for (unsigned i = 0; round % 2 == parity && i < 3 * (round % ROUNDS); ++i)
                std::atomic_signal_fence(std::memory_order_seq_cst);
        };
        std::atomic<bool> is_ready = false, is_time = false;
        std::thread other([&] {
            is_ready = true;
            while (!is_time)
                ;
            pause(0);
            shutdown(end.get(), SHUT_WR);
        });
        while (!is_ready)
            ;
        is_time = true;
        pause(1);
        auto all = closing(pair.connected.get());
        other.join();
        return all;
    }
    void expect_bytes(int fd, std::uint64_t tx, std::uint64_t rx) {
        const auto all = closing(fd);
        ASSERT_EQ(all.size(), 1U);
        EXPECT_EQ(all[0].tx_payload_bytes, tx);
        EXPECT_EQ(all[0].rx_payload_bytes, rx);
    }
};

std::uint64_t retransmitted_by_kernel(int fd) {
    tcp_info info{};
    socklen_t size = sizeof(info);
    EXPECT_EQ(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size), 0);
    return info.tcpi_bytes_retrans;
}

// By how many bytes it was wrong, how often.
using Differences = std::map<std::int64_t, unsigned>;

// The kernel takes two steps with a FIN. Where it is interrupted between them for longer than the
// program looks, there is one byte too few of what is sent, too many of what arrives.
constexpr std::int64_t FIN_TX_BYTES = -1;
constexpr std::int64_t FIN_RX_BYTES = 1;

void expect_no_fin_in(const Differences &all, std::int64_t fin_bytes) {
    for (const auto &[by_bytes, n] : all) {
        const bool is_right = by_bytes == 0;
        const bool is_fin = by_bytes == fin_bytes;
        EXPECT_LE(n, is_right ? 4 * ROUNDS : is_fin ? ROUNDS / 500 : 0) << by_bytes;
    }
}

bool is_readable(const Fd &fd, short events = POLLIN) {
    pollfd waits{fd.get(), events, 0};
    return poll(&waits, 1, 5000) == 1;
}

TEST_P(NcclSockets, WhatItCarried) {
    for (const Addresses kind : {Addresses::Ipv4, Addresses::Ipv6, Addresses::Ipv4ByIpv6}) {
        SCOPED_TRACE(static_cast<int>(kind));
        Listener listener(kind);
        if (!listener.is_there)
            continue; // no IPv6
        TcpPair pair(listener);
        ASSERT_TRUE(pair.is_there());
        expect_bytes(pair.connected.get(), 0, 0);
        TcpPair::move(pair.connected, pair.accepted, 100'001);
        TcpPair::move(pair.accepted, pair.connected, 37);
        struct stat status {};
        ASSERT_EQ(fstat(pair.connected.get(), &status), 0);
        const std::uint64_t retransmitted = retransmitted_by_kernel(pair.connected.get());
        const auto all = closing(pair.connected.get(), PROXY);
        ASSERT_EQ(all.size(), 1U);
        EXPECT_EQ(all[0].tgid, static_cast<std::uint32_t>(getpid()));
        EXPECT_EQ(all[0].inode, status.st_ino);
        EXPECT_EQ(all[0].type, static_cast<unsigned>(CW_NCCL_SOCKET_PROXY));
        EXPECT_EQ(all[0].tx_payload_bytes, 100'001U);
        EXPECT_EQ(all[0].rx_payload_bytes, 37U);
        // A slow machine sends the last bytes twice (tail loss probe), perhaps after the first
        // look.
        EXPECT_GE(all[0].retransmitted_bytes, retransmitted);
        EXPECT_LE(all[0].retransmitted_bytes, retransmitted + 100'001);
        expect_bytes(pair.accepted.get(), 37, 100'001);
    }
    EXPECT_EQ(lost(CW_LOSS_NCCL_SOCKET), 0U);
}

// The window of the other end is full: some was written and is not sent, and with it its FIN.
TEST_P(NcclSockets, WhatIsNotSent) {
    Listener listener;
    const int small = 4096, large = 1 << 20;
    ASSERT_EQ(setsockopt(listener.fd.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
    TcpPair pair(listener);
    ASSERT_TRUE(pair.is_there());
    ASSERT_EQ(setsockopt(pair.connected.get(), SOL_SOCKET, SO_SNDBUF, &large, sizeof(large)), 0);
    const std::vector<char> buffer(10'007);
    std::uint64_t written = 0;
    for (;;) {
        const ssize_t n = send(pair.connected.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
        if (n < 0)
            break;
        written += static_cast<std::uint64_t>(n);
    }
    ASSERT_GT(written, 100'000U) << "more than the other end takes";
    expect_bytes(pair.connected.get(), written, 0);
    ASSERT_EQ(shutdown(pair.connected.get(), SHUT_RDWR), 0);
    expect_bytes(pair.connected.get(), written, 0);
    const auto other = closing(pair.accepted.get());
    ASSERT_EQ(other.size(), 1U);
    EXPECT_LT(other[0].rx_payload_bytes, written);
    EXPECT_EQ(other[0].tx_payload_bytes, 0U);
}

// The FIN comes at any moment of the look.
TEST_P(NcclSockets, AnotherThreadEndsTheStreamMeanwhile) {
    Listener listener;
    const int small = 4096;
    ASSERT_EQ(setsockopt(listener.fd.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
    const std::vector<char> buffer(16'384);
    Differences tx;
    const std::uint64_t end_ns = monotonic_ns() + LONGEST_NS;
    for (unsigned round = 0; round < ROUNDS && monotonic_ns() < end_ns; ++round) {
        TcpPair pair(listener);
        ASSERT_TRUE(pair.is_there());
        std::uint64_t written = 0;
        for (ssize_t n = 1; n > 0; written += n > 0 ? static_cast<std::uint64_t>(n) : 0)
            n = send(pair.connected.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
        const auto all = closing_while_it_ends(pair, pair.connected, round);
        ASSERT_EQ(all.size(), 1U);
        ++tx[static_cast<std::int64_t>(all[0].tx_payload_bytes - written)];
    }
    expect_no_fin_in(tx, FIN_TX_BYTES);
}

// What was written and not sent goes out at any moment of the look, as the other end reads.
TEST_P(NcclSockets, IsSentMeanwhile) {
    Listener listener;
    const int small = 4096;
    ASSERT_EQ(setsockopt(listener.fd.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
    std::vector<char> buffer(16'384);
    Differences tx;
    const std::uint64_t end_ns = monotonic_ns() + LONGEST_NS;
    for (unsigned round = 0; round < ROUNDS / 10 && monotonic_ns() < end_ns; ++round) {
        TcpPair pair(listener);
        ASSERT_TRUE(pair.is_there());
        std::uint64_t written = 0;
        for (ssize_t n = 1; n > 0; written += n > 0 ? static_cast<std::uint64_t>(n) : 0)
            n = send(pair.connected.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
        std::atomic<bool> is_read = false;
        std::thread other([&] {
            for (std::uint64_t read_bytes = 0; read_bytes < written;) {
                const ssize_t n = recv(pair.accepted.get(), buffer.data(), buffer.size(), 0);
                read_bytes += n > 0 ? static_cast<std::uint64_t>(n) : written;
            }
            is_read = true;
        });
        while (!is_read)
            for (const cw_nccl_socket &socket : closing(pair.connected.get()))
                ++tx[static_cast<std::int64_t>(socket.tx_payload_bytes - written)];
        other.join();
    }
    // Where a CPU stands still in the middle of sending it is the SYN.
    unsigned looks = 0;
    for (const auto &[by_bytes, n] : tx)
        looks += n;
    for (const auto &[by_bytes, n] : tx)
        EXPECT_LE(n, by_bytes == 0 ? looks : by_bytes == 1 ? 1 + looks / 100 : 0) << by_bytes;
}

TEST_P(NcclSockets, TheOtherEndEndsTheStreamMeanwhile) {
    Listener listener;
    Differences rx;
    const std::uint64_t end_ns = monotonic_ns() + LONGEST_NS;
    for (unsigned round = 0; round < 4 * ROUNDS && monotonic_ns() < end_ns; ++round) {
        TcpPair pair(listener);
        ASSERT_TRUE(pair.is_there());
        TcpPair::move(pair.accepted, pair.connected, 3);
        const auto all = closing_while_it_ends(pair, pair.accepted, round);
        ASSERT_EQ(all.size(), 1U);
        ++rx[static_cast<std::int64_t>(all[0].rx_payload_bytes - 3)];
    }
    expect_no_fin_in(rx, FIN_RX_BYTES);
}

// Neither end's is a byte of payload, in whatever order they close, read or not.
TEST_P(NcclSockets, EndsOfStreams) {
    Listener listener;
    TcpPair pair(listener);
    ASSERT_TRUE(pair.is_there());
    TcpPair::move(pair.connected, pair.accepted, 500);
    ASSERT_EQ(send(pair.accepted.get(), "seven b", 7, 0), 7);
    ASSERT_EQ(shutdown(pair.accepted.get(), SHUT_WR), 0);
    ASSERT_TRUE(is_readable(pair.connected, POLLRDHUP));
    expect_bytes(pair.accepted.get(), 7, 500);  // FIN_WAIT2
    expect_bytes(pair.connected.get(), 500, 7); // CLOSE_WAIT
    TcpPair::move(pair.connected, pair.accepted, 20);
    ASSERT_EQ(shutdown(pair.connected.get(), SHUT_RDWR), 0);
    ASSERT_TRUE(is_readable(pair.accepted));
    expect_bytes(pair.accepted.get(), 7, 520); // of both ends the kernel has done with
    expect_bytes(pair.connected.get(), 520, 7);
}

// Reset by the other end, which did not read what had come.
TEST_P(NcclSockets, AConnectionThatWasReset) {
    Listener listener;
    TcpPair pair(listener);
    ASSERT_TRUE(pair.is_there());
    ASSERT_EQ(send(pair.connected.get(), "unread", 6, 0), 6);
    ASSERT_TRUE(is_readable(pair.accepted));
    pair.accepted.reset();
    ASSERT_TRUE(is_readable(pair.connected));
    expect_bytes(pair.connected.get(), 6, 0);
}

TEST_P(NcclSockets, WhatIsNoSocketOfItsOwn) {
    Listener listener;
    TcpPair pair(listener);
    ASSERT_TRUE(pair.is_there());
    std::array<int, 2> ends{};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    const Fd left(ends[0]), right(ends[1]);
    ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    const Fd out(ends[0]), in(ends[1]);
    const Fd udp(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    Fd closed(dup(out.get()));
    const int number = closed.get();
    closed.reset();
    for (const int fd : {-1, number, 1 << 30, left.get(), out.get(), udp.get(), listener.fd.get()})
        EXPECT_TRUE(closing(fd).empty()) << fd;
    for (const std::uint32_t type : {UNKNOWN, NET_SOCKET, 15U, 16U, ~0U})
        EXPECT_TRUE(closing(pair.connected.get(), type).empty()) << type;
    EXPECT_EQ(nccl_programs_test_start(nullptr), 0);
    EXPECT_EQ(lost(CW_LOSS_NCCL_SOCKET), 0U);
    EXPECT_EQ(closing(pair.connected.get()).size(), 1U);
}

TEST_P(NcclSockets, MemoryThatIsNotThere) {
    ASSERT_NO_FATAL_FAILURE(load());
    void *const page =
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(page, MAP_FAILED);
    EXPECT_EQ(nccl_programs_test_start(page), 0); // never touched so far
    (void)ring_->consume();
    EXPECT_TRUE(records_.empty());
    EXPECT_EQ(lost(CW_LOSS_NCCL_SOCKET), 1U);
    EXPECT_EQ(lost(CW_LOSS_NCCL_FAULT), 0U) << "that is of launches";
    munmap(page, 4096);
}

TEST_P(NcclSockets, OutsideOfTheRecording) {
    Listener listener;
    TcpPair pair(listener);
    ASSERT_TRUE(pair.is_there());
    EXPECT_EQ(closing(pair.connected.get()).size(), 1U);
    for (const cw_hold state : {CW_HELD, CW_OVER}) {
        ASSERT_TRUE(maps_->hold(state));
        EXPECT_TRUE(closing(pair.connected.get()).empty());
    }
}

// More than once around the ring buffer.
TEST_P(NcclSockets, AreCountedWhileNoOneReadsThem) {
    Listener listener;
    TcpPair pair(listener);
    ASSERT_TRUE(pair.is_there());
    ASSERT_EQ(closing(pair.connected.get()).size(), 1U);
    constexpr std::size_t RECORDS = 1000;
    Socket socket{.fd = pair.connected.get(), .type = BOOTSTRAP};
    for (std::size_t bytes = 0; bytes < 2 * loader::SharedMapOptions{}.ring_bytes;
         bytes += RECORDS * sizeof(cw_nccl_socket)) {
        records_.clear();
        for (std::size_t i = 0; i < RECORDS; ++i)
            ASSERT_EQ(nccl_programs_test_start(&socket), 0);
        ASSERT_EQ(loader::unread_records(maps_->events_fd()), RECORDS);
        ASSERT_EQ(loader::unread_records(maps_->bulk_events_fd()), 0U);
        ASSERT_TRUE(ring_->consume());
        ASSERT_EQ(loader::unread_records(maps_->events_fd()), 0U);
        ASSERT_EQ(records_.size(), RECORDS);
    }
    EXPECT_EQ(lost(CW_LOSS_NCCL_SOCKET), 0U);
}

INSTANTIATE_TEST_SUITE_P(Programs, NcclSockets, testing::Values("socket_closes"),
                         [](const auto &of) { return std::string{of.param}; });

} // namespace
} // namespace collwire::test
