// SPDX-License-Identifier: Apache-2.0
// The program on the end of a TCP socket, for the sockets of connections that the programs on a
// launch have read: its counters, against what this process wrote.
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <deque>
#include <optional>
#include <vector>

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collwire/record_kinds.h"
#include "collwire/recorder_records.h"
// After them: the skeleton names their types.
#include "socket_ends.skel.h"

#include "tests/root/nccl_programs.h"
#include "tests/support/tcp_pair.h"
#include "userspace/sources/socket_end.h"

namespace collwire::test {
namespace {

constexpr std::uint64_t SENT = 70'001, ANSWERED = 33;

std::uint64_t inode_of(int fd) {
    struct stat status {};
    return fstat(fd, &status) == 0 ? status.st_ino : 0;
}

class NcclSocketEnds : public NcclPrograms {
protected:
    void TearDown() override {
        bpf_link__destroy(end_link_);
        NcclPrograms::TearDown();
    }
    // One more launch, with a connection of this control socket and this one for data.
    void launch_on(int control, int data) {
        comm_of_sockets_.n_sockets = 1;
        comm_of_sockets_.control.fd = control;
        comm_of_sockets_.sockets[0].fd = data;
        resources_.net_comm = &comm_of_sockets_;
        proxy_state_.net = &net_socket_;
        const Connection &fresh = more_connections_.emplace_back(send_);
        own_ops_[1].connection = reinterpret_cast<std::uint64_t>(&fresh);
        if (link_ == nullptr) {
            ASSERT_NO_FATAL_FAILURE(load_both());
        }
        launch();
        ASSERT_FALSE(connections().empty());
    }
    // The end of the socket with this inode, in payload.
    std::optional<sources::SocketPayload> payload_of(std::uint64_t inode) {
        const auto end = end_of(inode);
        if (!end)
            return std::nullopt;
        return sources::SocketBytes(end->connected != 0)
            .end(sources::socket_of(*end), sources::fins_of(*end));
    }
    std::optional<cw_tcp_socket_end> end_of(std::uint64_t inode) {
        std::optional<cw_tcp_socket_end> found;
        for (const auto &end : emitted<cw_tcp_socket_end>(CW_KIND_TCP_SOCKET_END)) {
            EXPECT_FALSE(found && end.inode == inode) << "once";
            found = end.inode == inode ? end : found;
        }
        return found;
    }
    // The kernel may be done with a socket a little after it is closed.
    void wait_for_ends(std::size_t n) {
        for (int i = 0; i < 6000; ++i) {
            (void)ring_->consume();
            if (emitted<cw_tcp_socket_end>(CW_KIND_TCP_SOCKET_END).size() >= n)
                return;
            usleep(10'000);
        }
        ADD_FAILURE() << "no record of an end";
    }
    void expect_payload(std::uint64_t inode, std::uint64_t acked, std::uint64_t received) {
        const auto payload = payload_of(inode);
        ASSERT_TRUE(payload);
        EXPECT_EQ(payload->acked_bytes, acked);
        EXPECT_EQ(payload->received_bytes, received);
        EXPECT_EQ(payload->unsent_bytes, 0U);
    }

private:
    void load_both() {
        load();
        if (link_ == nullptr)
            return;
        const auto opened = ends_.open();
        ASSERT_TRUE(opened) << opened.failure().message;
        const auto loaded = ends_.load(*maps_);
        ASSERT_TRUE(loaded) << loaded.failure().message;
        end_link_ =
            bpf_program__attach_raw_tracepoint(ends_->progs.socket_state, "inet_sock_set_state");
        ASSERT_NE(end_link_, nullptr) << std::strerror(errno);
    }

    SocketComm comm_of_sockets_;
    std::deque<Connection> more_connections_;
    loader::Skeleton<::socket_ends> ends_{"programs on ends"};
    bpf_link *end_link_ = nullptr;
};

TEST_P(NcclSocketEnds, WhatItCarried) {
    for (const Addresses kind : {Addresses::Ipv4, Addresses::Ipv6, Addresses::Ipv4ByIpv6}) {
        Listener listener(kind);
        if (!listener.is_there)
            continue; // no IPv6
        for (const bool connected_first : {true, false}) {
            for (const bool end_is_read : {true, false}) {
                SCOPED_TRACE(testing::Message()
                             << static_cast<int>(kind) << connected_first << end_is_read);
                TcpPair pair(listener), other(listener);
                ASSERT_TRUE(pair.is_there() && other.is_there());
                const std::uint64_t connected = inode_of(pair.connected.get());
                const std::uint64_t accepted = inode_of(pair.accepted.get());
                ASSERT_NO_FATAL_FAILURE(launch_on(pair.connected.get(), pair.accepted.get()));
                TcpPair::move(pair.connected, pair.accepted, SENT);
                TcpPair::move(pair.accepted, pair.connected, ANSWERED);
                Fd &first = connected_first ? pair.connected : pair.accepted;
                Fd &second = connected_first ? pair.accepted : pair.connected;
                shutdown(first.get(), SHUT_RDWR); // as NCCL does
                first.reset();
                char byte = 0;
                if (end_is_read) {
                    EXPECT_EQ(recv(second.get(), &byte, 1, 0), 0);
                }
                second.reset();
                other.connected.reset();
                other.accepted.reset();
                wait_for_ends(2);
                expect_payload(connected, SENT, ANSWERED);
                expect_payload(accepted, ANSWERED, SENT);
                EXPECT_EQ(emitted<cw_tcp_socket_end>(CW_KIND_TCP_SOCKET_END).size(), 2U);
                const auto one = end_of(connected), two = end_of(accepted);
                ASSERT_TRUE(one && two);
                EXPECT_EQ(one->tgid, static_cast<std::uint32_t>(getpid()));
                EXPECT_EQ(one->local_port, two->remote_port);
                EXPECT_EQ(one->remote_port, two->local_port);
                EXPECT_EQ(std::memcmp(one->local_address, two->remote_address, 16), 0);
                EXPECT_EQ(std::memcmp(one->remote_address, two->local_address, 16), 0);
                EXPECT_EQ(one->remote_address[15], 1U);
                EXPECT_EQ(one->remote_address[10], kind == Addresses::Ipv6 ? 0U : 0xffU);
                struct stat status {};
                ASSERT_EQ(stat("/proc/self/ns/net", &status), 0);
                EXPECT_EQ(one->netns, status.st_ino);
                EXPECT_GT(one->sent_segments, 2U);
                EXPECT_GT(one->received_segments, 2U);
                EXPECT_GT(one->rtt_us, 0U);
                EXPECT_GT(one->mss_bytes, 0U);
            }
        }
    }
    EXPECT_EQ(lost(CW_LOSS_NCCL_SOCKET), 0U);
}

TEST_P(NcclSocketEnds, OfAProcessThatExits) {
    Listener listener;
    TcpPair pair(listener);
    ASSERT_TRUE(pair.is_there());
    const std::uint64_t inode = inode_of(pair.connected.get());
    ASSERT_NO_FATAL_FAILURE(launch_on(pair.connected.get(), -1));
    const pid_t child = fork();
    if (child == 0) {
        TcpPair::move(pair.connected, pair.accepted, SENT);
        _exit(0);
    }
    pair.connected.reset(); // the child has the last one
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    pair.accepted.reset();
    wait_for_ends(1);
    expect_payload(inode, SENT, 0);
}

TEST_P(NcclSocketEnds, OfAConnectionThatWasReset) {
    Listener listener;
    TcpPair pair(listener);
    ASSERT_TRUE(pair.is_there());
    const std::uint64_t inode = inode_of(pair.connected.get());
    ASSERT_NO_FATAL_FAILURE(launch_on(pair.connected.get(), -1));
    TcpPair::move(pair.connected, pair.accepted, SENT);
    TcpPair::move(pair.accepted, pair.connected, ANSWERED);
    const linger at_once{1, 0};
    setsockopt(pair.accepted.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    pair.accepted.reset();
    wait_for_ends(1);
    expect_payload(inode, SENT, ANSWERED);
}

// What was written and never arrived is no payload of the connection.
TEST_P(NcclSocketEnds, OfOneWhoseBytesNobodyTakes) {
    Listener listener;
    TcpPair pair(listener);
    ASSERT_TRUE(pair.is_there());
    const std::uint64_t sender = inode_of(pair.connected.get());
    const std::uint64_t receiver = inode_of(pair.accepted.get());
    ASSERT_NO_FATAL_FAILURE(launch_on(pair.connected.get(), pair.accepted.get()));
    const std::vector<char> buffer(1 << 16);
    std::uint64_t written = 0;
    for (ssize_t n = 0; n >= 0;) {
        n = send(pair.connected.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
        written += n > 0 ? static_cast<std::uint64_t>(n) : 0;
    }
    // What arrived is acknowledged.
    tcp_info info{};
    info.tcpi_unacked = 1;
    for (int i = 0; i < 60'000 && info.tcpi_unacked != 0; ++i) {
        socklen_t size = sizeof(info);
        ASSERT_EQ(getsockopt(pair.connected.get(), IPPROTO_TCP, TCP_INFO, &info, &size), 0);
        if (info.tcpi_unacked != 0)
            usleep(1000);
    }
    ASSERT_EQ(info.tcpi_unacked, 0U);
    pair.accepted.reset();
    pair.connected.reset();
    wait_for_ends(2);
    const auto sent = payload_of(sender), received = payload_of(receiver);
    ASSERT_TRUE(sent && received);
    EXPECT_GT(sent->acked_bytes, 0U);
    EXPECT_EQ(sent->acked_bytes, received->received_bytes);
    EXPECT_LT(sent->acked_bytes, written);
}

TEST_P(NcclSocketEnds, BehindTheEndOfTheRecording) {
    Listener listener;
    TcpPair pair(listener);
    ASSERT_TRUE(pair.is_there());
    ASSERT_NO_FATAL_FAILURE(launch_on(pair.connected.get(), pair.accepted.get()));
    ASSERT_TRUE(maps_->hold(CW_OVER));
    pair.connected.reset();
    pair.accepted.reset();
    usleep(100'000);
    (void)ring_->consume();
    EXPECT_TRUE(emitted<cw_tcp_socket_end>(CW_KIND_TCP_SOCKET_END).empty());
    EXPECT_EQ(lost(CW_LOSS_NCCL_SOCKET), 0U);
}

INSTANTIATE_TEST_SUITE_P(Walks, NcclSocketEnds,
                         testing::Values("proxy_start", "proxy_start_bounded"),
                         [](const auto &of) { return std::string{of.param}; });

} // namespace
} // namespace collwire::test
