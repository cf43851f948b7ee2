// SPDX-License-Identifier: Apache-2.0
// The kernel's records of sockets that ended, joined to the sockets that are watched.
#include <gtest/gtest.h>

#include <sys/wait.h>

#include "collwire/record_kinds.h"
#include "tests/unit/sockets_fixture.h"

namespace collwire::sources {
namespace {

using test::TcpPair;
using test::TcpRecords;

// The kernel's record of the end of a socket that carried 1,000 bytes and got 500.
cw_tcp_socket_end end_of(std::uint32_t fd, std::uint64_t inode, std::uint64_t time_ns) {
    cw_tcp_socket_end end{};
    end.header = {sizeof(end), CW_KIND_TCP_SOCKET_END, 1, time_ns};
    end.inode = inode;
    end.netns = 4026531840;
    end.tgid = own_tgid();
    end.fd = fd;
    end.local_address[15] = end.remote_address[15] = 1;
    end.local_port = 1234;
    end.remote_port = 4321;
    end.connected = 1;
    end.sent_bytes = 1000;
    end.acked_bytes = 1002;
    end.received_bytes = 501;
    end.state = 5; // FIN_WAIT2
    end.fin_received = 1;
    return end;
}

class SocketEnds : public Sockets {
protected:
    void SetUp() override {
        SocketOptions options;
        options.interval_ns = 0;
        options.has_end_records = [] { return true; };
        start(std::move(options));
    }
    // A socket that is closed by now.
    std::uint64_t watch_closed(std::uint32_t tgid) {
        TcpPair pair(listener);
        const std::uint64_t inode = inode_of(pair.connected);
        fd = pair.connected.number();
        pair.connected.reset();
        source->watch(tgid, fd, inode, true);
        return inode;
    }
    void expect_end(const TcpRecords &records, std::uint64_t time_ns) {
        ASSERT_EQ(records.all.size(), 1U);
        expect_bytes(records.last_of(fd), 1000, 500);
        EXPECT_EQ(records.all[0].flags & END_FLAGS, END_FLAGS);
        EXPECT_EQ(records.all[0].state, 7U);
        EXPECT_EQ(records.all[0].header.time_ns, time_ns);
        EXPECT_EQ(sample().all.size(), 0U);
        EXPECT_EQ(source->n_watched(), 0U);
        EXPECT_EQ(reasons(), "");
    }

    std::uint32_t fd = 0;
};

TEST_F(SocketEnds, OfOneThatClosedBeforeItsFirstSample) {
    const std::uint64_t inode = watch_closed(own_tgid());
    EXPECT_EQ(sample().all.size(), 0U);
    EXPECT_EQ(reasons(), "") << "its end may come";
    const auto end = end_of(fd, inode, 77);
    source->on_record(end.header);
    source->on_record(end.header);
    expect_end(sample(), 77);
}

TEST_F(SocketEnds, OfAProcessThatHasExited) {
    const pid_t child = fork();
    if (child == 0)
        _exit(0);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    const std::uint64_t inode = watch_closed(static_cast<std::uint32_t>(child));
    EXPECT_EQ(reasons(), "");
    const auto end = end_of(fd, inode, 77);
    source->on_record(end.header);
    expect_end(sample(), 77);
    watch_closed(static_cast<std::uint32_t>(child));
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(reasons(), "");
        sample();
    }
    EXPECT_NE(reasons().find("1 sockets closed before"), std::string::npos) << reasons();
}

TEST_F(SocketEnds, WithoutARecordItIsCounted) {
    const std::uint64_t inode = watch_closed(own_tgid());
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(reasons(), "");
        sample();
    }
    EXPECT_NE(reasons().find("1 sockets closed before"), std::string::npos) << reasons();
    source->on_record(end_of(fd, inode, 77).header);
    EXPECT_EQ(sample().all.size(), 0U) << "it is counted as not counted";
    watch_closed(own_tgid());
    source->detach();
    sample();
    EXPECT_NE(reasons().find("2 sockets closed before"), std::string::npos) << reasons();
}

TEST_F(SocketEnds, OfASampledOneIsNeverBeforeItsSample) {
    TcpPair pair(listener);
    watch(pair.connected, true);
    fd = pair.connected.number();
    const std::uint64_t inode = inode_of(pair.connected);
    const auto first = sample();
    ASSERT_EQ(first.all.size(), 1U);
    source->on_record(end_of(fd, inode, 1).header);
    pair.connected.reset(); // its notice comes, too
    pair.accepted.reset();
    usleep(50'000);
    expect_end(sample(), first.all[0].header.time_ns);
}

TEST_F(SocketEnds, BehindTheEndOfTheRecordingDoNotCount) {
    const TcpPair pair(listener);
    watch(pair.connected, true);
    fd = pair.connected.number();
    const std::uint64_t pending = watch_closed(own_tgid());
    source->end();
    source->on_record(end_of(pair.connected.number(), inode_of(pair.connected), 99).header);
    source->on_record(end_of(fd, pending, 77).header);
    source->detach();
    const auto last = sample();
    ASSERT_TRUE(last.last_of(pair.connected.number()));
    EXPECT_EQ(last.last_of(pair.connected.number())->acked_bytes, 0U);
    ASSERT_TRUE(last.last_of(fd)) << "it ended before";
    EXPECT_EQ(last.last_of(fd)->acked_bytes, 1000U);
    EXPECT_EQ(reasons(), "");
}

} // namespace
} // namespace collwire::sources
