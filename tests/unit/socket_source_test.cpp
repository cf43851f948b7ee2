// SPDX-License-Identifier: Apache-2.0
// Sockets of this process over loopback: what the kernel counts of them is what they were given.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <string>

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "collwire/nccl_connection_records.h"
#include "collwire/node_records.h"
#include "collwire/record_kinds.h"
#include "collwire/recorder_records.h"
#include "collwire/socket_records.h"
#include "tests/unit/sockets_fixture.h"

namespace collwire::sources {
namespace {

using test::Addresses;
using test::Fd;
using test::Listener;
using test::sample_into;
using test::TcpPair;
using test::TcpRecords;

class SocketsOf : public Sockets, public testing::WithParamInterface<Addresses> {};

TEST_P(SocketsOf, BytesAreThoseThatWereWritten) {
    Listener here(GetParam());
    if (!here.is_there)
        GTEST_SKIP() << "no such addresses here";
    const TcpPair pair(here);
    watch(pair);
    TcpRecords first = sample();
    expect_bytes(first.last_of(pair.connected.number()), 0, 0);
    expect_bytes(first.last_of(pair.accepted.number()), 0, 0);
    TcpPair::move(pair.connected, pair.accepted, 3'000'001);
    TcpPair::move(pair.accepted, pair.connected, 4);
    const auto records = sample_until([&](const TcpRecords &seen) {
        const auto one = seen.last_of(pair.connected.number());
        const auto two = seen.last_of(pair.accepted.number());
        return one && two && one->acked_bytes >= 3'000'001 && two->acked_bytes >= 4;
    });
    const auto connected = records.last_of(pair.connected.number());
    const auto accepted = records.last_of(pair.accepted.number());
    expect_bytes(connected, 3'000'001, 4);
    expect_bytes(accepted, 4, 3'000'001);
    EXPECT_EQ(connected->tgid, own_tgid());
    EXPECT_EQ(connected->local_port, accepted->remote_port);
    EXPECT_EQ(connected->remote_port, accepted->local_port);
    EXPECT_EQ(std::memcmp(connected->remote_address, accepted->local_address, 16), 0);
    EXPECT_EQ(connected->flags,
              GetParam() == Addresses::Ipv6 ? 0U : static_cast<std::uint32_t>(CW_TCP_SOCKET_IPV4));
    EXPECT_EQ(connected->flags, accepted->flags);
    EXPECT_EQ(connected->state, 1U);
    EXPECT_GT(connected->rtt_us, 0U);
    EXPECT_GT(connected->mss_bytes, 0U);
    EXPECT_GT(connected->sent_segments, 2U);
    EXPECT_GT(connected->received_segments, 2U);
    struct stat status {};
    ASSERT_EQ(fstat(pair.connected.get(), &status), 0);
    EXPECT_EQ(connected->inode, status.st_ino);
    ASSERT_EQ(stat("/proc/self/ns/net", &status), 0);
    EXPECT_EQ(connected->netns, status.st_ino);
    EXPECT_EQ(reasons(), "");
}

INSTANTIATE_TEST_SUITE_P(Every, SocketsOf,
                         testing::Values(Addresses::Ipv4, Addresses::Ipv6, Addresses::Ipv4ByIpv6));

TEST_F(Sockets, WrittenWhenChangedOrAskedForEverything) {
    const TcpPair pair(listener);
    const TcpPair idle(listener);
    watch(pair);
    watch(idle);
    EXPECT_EQ(sample().all.size(), 4U);
    usleep(50'000); // acknowledgements may be late
    sample();
    EXPECT_EQ(sample().all.size(), 0U);
    TcpPair::move(pair.connected, pair.accepted, 1000);
    usleep(100'000);
    EXPECT_EQ(sample().all.size(), 2U);
    EXPECT_EQ(sample().all.size(), 0U);
    EXPECT_EQ(sample(true).all.size(), 4U);
}

TEST_F(Sockets, NotBeforeTheIntervalIsOver) {
    SocketOptions options;
    options.interval_ns = 10'000'000'000; // each sample takes one second of the clock
    start(options);
    const TcpPair pair(listener);
    watch(pair);
    EXPECT_EQ(sample().all.size(), 2U);
    TcpPair::move(pair.connected, pair.accepted, 1000);
    usleep(100'000);
    EXPECT_EQ(sample().all.size(), 0U);
    EXPECT_FALSE(source->has_read_all());
    source->detach();
    EXPECT_EQ(sample().all.size(), 2U);
    EXPECT_TRUE(source->has_read_all());
}

// Nothing that is launched later is recorded.
TEST_F(Sockets, NothingIsCountedAfterTheEnd) {
    const TcpPair pair(listener);
    watch(pair);
    sample();
    TcpPair::move(pair.connected, pair.accepted, 1000);
    usleep(100'000);
    source->end();
    TcpPair::move(pair.connected, pair.accepted, 500);
    usleep(100'000);
    source->detach();
    const auto last = sample();
    ASSERT_EQ(last.all.size(), 2U);
    EXPECT_EQ(std::max(last.all[0].acked_bytes, last.all[1].acked_bytes), 1000U);
    EXPECT_EQ(std::max(last.all[0].received_bytes, last.all[1].received_bytes), 1000U);
    EXPECT_EQ(sample().all.size(), 0U);
}

// A connection may be emitted while the probes are detached.
TEST_F(Sockets, NothingIsWatchedAfterTheEnd) {
    const TcpPair before(listener);
    const TcpPair late(listener);
    watch(before);
    sample();
    source->end();
    watch(late);
    TcpPair::move(late.connected, late.accepted, 500);
    usleep(100'000);
    source->detach();
    EXPECT_EQ(source->n_watched(), 2U);
    const auto last = sample(true);
    EXPECT_FALSE(last.last_of(late.connected.number()));
    EXPECT_FALSE(last.last_of(late.accepted.number()));
    EXPECT_TRUE(source->has_read_all());
    EXPECT_EQ(reasons(), "");
}

// What is launched right after the start is measured from there.
TEST_F(Sockets, ReadBeforeAnythingCounts) {
    const TcpPair pair(listener);
    watch(pair);
    TcpPair::move(pair.connected, pair.accepted, 500);
    usleep(100'000);
    source->baseline();
    TcpPair::move(pair.connected, pair.accepted, 1000);
    usleep(100'000);
    const auto first = sample(true);
    ASSERT_EQ(first.all.size(), 4U);
    EXPECT_EQ(std::max(first.all[0].acked_bytes, first.all[1].acked_bytes), 500U);
    EXPECT_EQ(std::max(first.all[2].acked_bytes, first.all[3].acked_bytes), 1500U);
}

TEST_F(Sockets, ANewSegmentPutsNothingOff) {
    SocketOptions options;
    options.interval_ns = 10'000'000'000;
    start(options);
    const TcpPair pair(listener);
    watch(pair);
    EXPECT_EQ(sample().all.size(), 2U);
    const std::uint64_t read_ns = now_ns;
    sample(true);
    do
        sample();
    while (!source->has_read_all());
    EXPECT_LE(now_ns - read_ns, options.interval_ns);
}

TEST_F(Sockets, OfConnectionsOverSocketsOnly) {
    const TcpPair pair(listener);
    const TcpPair other(listener);
    ASSERT_TRUE(pair.is_there() && other.is_there());
    cw_nccl_connection record{};
    record.header = {sizeof(record), CW_KIND_NCCL_CONNECTION, 0, 0};
    record.tgid = own_tgid();
    record.transport = CW_NCCL_TRANSPORT_SOCKET;
    record.flags = CW_NCCL_CONNECTION_SEND;
    record.n_endpoints = 3;
    record.n = 3;
    record.endpoints[0].number = pair.connected.number();
    record.endpoints[1].number = pair.accepted.number();
    record.endpoints[2].number = ~0U; // not open yet
    record.socket_inodes[0] = inode_of(pair.connected);
    record.socket_inodes[1] = inode_of(pair.accepted);
    source->on_record(record.header);
    source->on_record(record.header); // again: the same sockets
    EXPECT_EQ(sample().all.size(), 2U);
    EXPECT_EQ(source->n_watched(), 2U);
    record.n = 1;
    record.endpoints[0].number = other.connected.number();
    record.socket_inodes[0] = inode_of(other.connected);
    record.transport = CW_NCCL_TRANSPORT_IB;
    source->on_record(record.header);
    record.transport = CW_NCCL_TRANSPORT_SOCKET;
    record.header.length_bytes = sizeof(record) - 8;
    source->on_record(record.header);
    record.header.length_bytes = sizeof(record);
    record.header.kind = CW_KIND_NCCL_COMM;
    source->on_record(record.header);
    EXPECT_EQ(sample().all.size(), 0U);
    EXPECT_EQ(source->n_watched(), 2U);
    record.header.kind = CW_KIND_NCCL_CONNECTION;
    record.n = 4'000'000;
    for (cw_nccl_endpoint &endpoint : record.endpoints)
        endpoint.number = other.connected.number();
    std::ranges::fill(record.socket_inodes, inode_of(other.connected));
    source->on_record(record.header);
    EXPECT_EQ(sample().all.size(), 1U);
    EXPECT_EQ(source->n_watched(), 3U);
    EXPECT_EQ(reasons(), "");
}

TEST_F(Sockets, OneThatClosesBetweenSamplesHasItsLastBytes) {
    for (const bool connected_first : {true, false}) {
        for (const bool end_is_read : {true, false}) {
            SCOPED_TRACE(testing::Message() << connected_first << end_is_read);
            TcpPair pair(listener);
            watch(pair);
            EXPECT_EQ(sample().all.size(), 2U);
            const std::uint32_t connected = pair.connected.number();
            const std::uint32_t accepted = pair.accepted.number();
            TcpPair::move(pair.connected, pair.accepted, 70'001);
            TcpPair::move(pair.accepted, pair.connected, 33);
            Fd &first = connected_first ? pair.connected : pair.accepted;
            Fd &second = connected_first ? pair.accepted : pair.connected;
            shutdown(first.get(), SHUT_RDWR); // as NCCL does
            first.reset();
            char byte = 0;
            if (end_is_read) {
                EXPECT_EQ(recv(second.get(), &byte, 1, 0), 0);
            }
            second.reset();
            const auto records = sample_until([&](const TcpRecords &seen) {
                return seen.has_end_of(connected) && seen.has_end_of(accepted);
            });
            // Who reads the end of the stream and closes between two samples has the FIN in it.
            const std::uint64_t fin = end_is_read ? 1 : 0;
            expect_bytes(records.last_of(connected), 70'001, 33 + (connected_first ? 0 : fin));
            expect_bytes(records.last_of(accepted), 33, 70'001 + (connected_first ? fin : 0));
            for (const std::uint32_t fd : {connected, accepted}) {
                EXPECT_EQ(records.last_of(fd)->flags & END_FLAGS, END_FLAGS);
                EXPECT_EQ(records.last_of(fd)->state, 7U);
            }
            EXPECT_EQ(source->n_watched(), 0U);
        }
    }
    EXPECT_EQ(reasons(), "");
}

TEST_F(Sockets, WithoutNoticesTheLastLookCounts) {
    SocketOptions options;
    options.end_notices = false;
    start(options);
    TcpPair pair(listener);
    watch(pair.connected, true);
    TcpPair::move(pair.connected, pair.accepted, 1000);
    usleep(100'000);
    const std::uint32_t fd = pair.connected.number();
    expect_bytes(sample().last_of(fd), 1000, 0);
    TcpPair::move(pair.connected, pair.accepted, 500);
    usleep(100'000);
    pair.connected.reset();
    pair.accepted.reset();
    const auto records = sample_until([&](const TcpRecords &seen) { return seen.has_end_of(fd); });
    const auto last = records.last_of(fd);
    expect_bytes(last, 1000, 0);
    EXPECT_EQ(last->flags & END_FLAGS, static_cast<std::uint32_t>(CW_TCP_SOCKET_GONE));
    EXPECT_EQ(source->n_watched(), 0U);
}

TEST_F(Sockets, WatchedAndGoneBeforeTheFirstSample) {
    TcpPair pair(listener);
    watch(pair.connected, true);
    EXPECT_EQ(source->n_watched(), 1U); // the first one is searched for at once
    TcpPair::move(pair.connected, pair.accepted, 1234);
    const std::uint32_t fd = pair.connected.number();
    pair.connected.reset();
    pair.accepted.reset();
    const auto records = sample_until([&](const TcpRecords &) { return source->n_watched() == 0; });
    ASSERT_EQ(records.all.size(), 1U);
    expect_bytes(records.last_of(fd), 1234, 0);
    EXPECT_EQ(reasons(), "");
}

TEST_F(Sockets, ResetOneIsThereUntilItIsClosed) {
    TcpPair pair(listener);
    watch(pair.connected, true);
    const std::uint32_t fd = pair.connected.number();
    EXPECT_EQ(sample().all.size(), 1U);
    TcpPair::move(pair.connected, pair.accepted, 1000);
    usleep(100'000);
    const linger at_once{1, 0};
    setsockopt(pair.accepted.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    pair.accepted.reset();
    usleep(50'000);
    for (int i = 0; i < 4; ++i)
        EXPECT_EQ(sample().all.size(), 0U);
    EXPECT_EQ(source->n_watched(), 1U);
    pair.connected.reset();
    const auto records = sample_until([&](const TcpRecords &seen) { return seen.has_end_of(fd); });
    expect_bytes(records.last_of(fd), 1000, 0);
    EXPECT_EQ(records.last_of(fd)->flags & END_FLAGS, END_FLAGS);
    EXPECT_EQ(source->n_watched(), 0U);
}

TEST_F(Sockets, WhatIsNotReadIsWrittenAllTheSame) {
    TcpPair pair(listener);
    watch(pair);
    sample();
    std::vector<char> buffer(1 << 16);
    std::uint64_t written = 0;
    for (ssize_t n = 0; n >= 0;) {
        n = send(pair.connected.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
        written += n > 0 ? static_cast<std::uint64_t>(n) : 0;
    }
    usleep(200'000);
    const auto record = sample().last_of(pair.connected.number());
    ASSERT_TRUE(record);
    EXPECT_GT(record->unsent_bytes, 0U);
    EXPECT_LT(record->acked_bytes, written);
    EXPECT_EQ(record->sent_bytes - record->retransmitted_bytes + record->unsent_bytes, written);
    // Closed with all that unread: what was acknowledged stays, what was not is not counted.
    const std::uint32_t fd = pair.connected.number();
    pair.accepted.reset();
    pair.connected.reset();
    const auto records = sample_until([&](const TcpRecords &seen) { return seen.has_end_of(fd); });
    ASSERT_TRUE(records.last_of(fd));
    EXPECT_EQ(records.last_of(fd)->acked_bytes, record->acked_bytes);
}

TEST_F(Sockets, ClosedBeforeItIsLookedAt) {
    TcpPair pair(listener);
    const std::uint32_t fd = pair.connected.number();
    const std::uint64_t inode = inode_of(pair.connected);
    pair.connected.reset();
    source->watch(own_tgid(), fd, inode, true);
    sample();
    EXPECT_EQ(source->n_watched(), 0U);
    EXPECT_EQ(source->states().at(0).state, CW_SOURCE_DEGRADED);
    EXPECT_NE(reasons().find("1 sockets closed before"), std::string::npos) << reasons();
    const Fd file(open("/dev/null", O_RDONLY | O_CLOEXEC)); // another file has its number by then
    watch(file, true);
    EXPECT_NE(reasons().find("2 sockets closed before"), std::string::npos) << reasons();
    EXPECT_EQ(sample().all.size(), 0U);
}

// By the time that the connection is emitted.
TEST_F(Sockets, ItsDescriptorIsAnotherSockets) {
    TcpPair first(listener);
    ASSERT_TRUE(first.is_there());
    cw_nccl_connection record{};
    record.header = {sizeof(record), CW_KIND_NCCL_CONNECTION, 0, 0};
    record.tgid = own_tgid();
    record.transport = CW_NCCL_TRANSPORT_SOCKET;
    record.n_endpoints = 1;
    record.n = 1;
    record.endpoints[0].number = first.connected.number();
    record.socket_inodes[0] = inode_of(first.connected);
    first.connected.reset();
    const TcpPair second(listener);
    ASSERT_EQ(second.connected.number(), record.endpoints[0].number);
    source->on_record(record.header);
    EXPECT_EQ(sample().all.size(), 0U);
    EXPECT_EQ(source->n_watched(), 0U);
    EXPECT_NE(reasons().find("1 sockets closed before"), std::string::npos) << reasons();
    record.socket_inodes[0] = inode_of(second.connected);
    source->on_record(record.header);
    const auto records = sample();
    ASSERT_EQ(records.all.size(), 1U);
    EXPECT_EQ(records.all[0].inode, inode_of(second.connected));
}

TEST_F(Sockets, NoTcpSocket) {
    std::array<int, 2> ends{};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    Fd one(ends[0]);
    const Fd two(ends[1]);
    watch(one, true);
    watch(two, true);
    sample();
    EXPECT_EQ(reasons(), "");
    one.reset();
    sample();
    EXPECT_NE(reasons().find("1 sockets closed before"), std::string::npos) << reasons();
    sample();
    EXPECT_NE(reasons().find("1 sockets are not TCP sockets"), std::string::npos) << reasons();
    EXPECT_EQ(source->n_watched(), 0U);
}

TEST_F(Sockets, AnotherSocketWithTheSameAddresses) {
    // A listener at the same port, which the kernel finds when the connection is gone.
    SocketOptions options;
    options.end_notices = false;
    start(options);
    TcpPair pair(listener);
    watch(pair.accepted, false);
    const std::uint32_t fd = pair.accepted.number();
    TcpPair::move(pair.connected, pair.accepted, 5);
    sample();
    pair.connected.reset();
    pair.accepted.reset();
    const auto records = sample_until([&](const TcpRecords &) { return source->n_watched() == 0; });
    ASSERT_TRUE(records.last_of(fd));
    EXPECT_EQ(records.last_of(fd)->received_bytes, 5U);
}

} // namespace
} // namespace collwire::sources
