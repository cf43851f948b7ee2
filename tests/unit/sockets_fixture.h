// SPDX-License-Identifier: Apache-2.0
// A socket source that watches sockets of this process over loopback.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <unistd.h>

#include "collwire/recorder_records.h"
#include "collwire/socket_records.h"
#include "tests/support/tcp_pair.h"
#include "userspace/inventory/process.h"
#include "userspace/sources/socket_source.h"

namespace collwire::sources {

inline constexpr std::uint32_t END_FLAGS = CW_TCP_SOCKET_GONE | CW_TCP_SOCKET_FINAL;

inline std::uint32_t own_tgid() {
    return static_cast<std::uint32_t>(getpid());
}

inline std::uint64_t inode_of(const test::Fd &fd) {
    return inventory::socket_inode(own_tgid(), fd.number());
}

class Sockets : public testing::Test {
protected:
    void SetUp() override { start({}); }
    void start(SocketOptions options) {
        options.clock = [this] { return now_ns += 1'000'000'000; };
        source = std::make_unique<SocketSource>(std::move(options));
        ASSERT_TRUE(source->prepare());
        ASSERT_TRUE(source->attach());
        const source::SourceState state = source->states().at(0);
        if (state.state == CW_SOURCE_UNAVAILABLE)
            GTEST_SKIP() << state.reason;
        ASSERT_EQ(state.state, CW_SOURCE_ON) << state.reason;
        ASSERT_TRUE(listener.is_there);
    }
    void watch(const test::Fd &fd, bool connected) {
        source->watch(own_tgid(), fd.number(), inode_of(fd), connected);
    }
    void watch(const test::TcpPair &pair) {
        ASSERT_TRUE(pair.is_there());
        watch(pair.connected, true);
        watch(pair.accepted, false);
    }
    // What is written by one more sample.
    test::TcpRecords sample(bool everything = false) {
        test::TcpRecords records;
        test::sample_into(records, *source, everything);
        return records;
    }
    // For the end of what was sent, or closed: the kernel does some of it a little later.
    template <typename Condition> test::TcpRecords sample_until(Condition condition) {
        test::TcpRecords records;
        for (int i = 0; i < 500 && !condition(records); ++i) {
            usleep(10'000);
            test::sample_into(records, *source);
        }
        return records;
    }
    [[nodiscard]] std::string reasons() const {
        std::string all;
        for (const source::SourceState &state : source->states())
            all += state.reason;
        return all;
    }

    std::uint64_t now_ns = 1'000'000'000;
    test::Listener listener;
    std::unique_ptr<SocketSource> source;
};

inline void expect_bytes(const std::optional<cw_tcp_socket> &record, std::uint64_t sent,
                         std::uint64_t received) {
    ASSERT_TRUE(record);
    EXPECT_EQ(record->acked_bytes, sent);
    EXPECT_EQ(record->received_bytes, received);
    EXPECT_EQ(record->sent_bytes - record->retransmitted_bytes, sent);
    EXPECT_EQ(record->unsent_bytes, 0U);
}

} // namespace collwire::sources
