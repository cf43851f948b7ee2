// SPDX-License-Identifier: Apache-2.0
// Readings as Linux 6.18 gave them, and some that are hard to come by.
#include <gtest/gtest.h>

#include "userspace/sources/socket_bytes.h"

namespace collwire::netlink {
namespace {

struct Reading {
    TcpState state = TcpState::Established;
    std::uint64_t acked = 0;
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    std::uint64_t retransmitted = 0;
    std::uint32_t unacked_segments = 0;
    std::uint32_t unsent = 0;
    std::uint32_t data_segments = 0;
    std::uint32_t unread = 0;
};

TcpSocket socket_of(const Reading &reading) {
    TcpInfo info;
    info.state = static_cast<std::uint8_t>(reading.state);
    info.acked_bytes = reading.acked;
    info.sent_bytes = reading.sent;
    info.received_bytes = reading.received;
    info.retransmitted_bytes = reading.retransmitted;
    info.unacked_segments = reading.unacked_segments;
    info.unsent_bytes = reading.unsent;
    info.received_data_segments = reading.data_segments;
    TcpSocket socket;
    socket.state = info.state;
    socket.unread_bytes = reading.unread;
    socket.info = info;
    return socket;
}

std::uint64_t acked(sources::SocketBytes &bytes, const Reading &reading) {
    return bytes.update(socket_of(reading)).acked_bytes;
}
std::uint64_t received(sources::SocketBytes &bytes, const Reading &reading) {
    return bytes.update(socket_of(reading)).received_bytes;
}

TEST(SocketBytes, OnlyTheEndThatConnectedCountsItsSyn) {
    for (const bool supposed : {false, true}) {
        sources::SocketBytes connected(supposed);
        EXPECT_EQ(acked(connected, {.acked = 1, .sent = 0}), 0U);
        EXPECT_EQ(acked(connected, {.acked = 1001, .sent = 1000}), 1000U);
        sources::SocketBytes accepted(supposed);
        EXPECT_EQ(acked(accepted, {.acked = 0, .sent = 0}), 0U);
        EXPECT_EQ(acked(accepted, {.acked = 1000, .sent = 1000}), 1000U);
    }
}

TEST(SocketBytes, WhichEndItIsIsSeenInTheMiddleOrSupposed) {
    sources::SocketBytes connected(true);
    EXPECT_EQ(acked(connected, {.acked = 501, .sent = 1000, .unacked_segments = 1}), 500U);
    sources::SocketBytes accepted(false);
    EXPECT_EQ(acked(accepted, {.acked = 500, .sent = 1000, .unacked_segments = 1}), 500U);
    sources::SocketBytes wrong(false);
    EXPECT_EQ(acked(wrong, {.acked = 501, .sent = 1000, .unacked_segments = 1}), 501U);
    EXPECT_EQ(acked(wrong, {.acked = 1001, .sent = 1000}), 1000U);
    EXPECT_EQ(acked(wrong, {.acked = 1501, .sent = 2000, .unacked_segments = 1}), 1500U);
}

TEST(SocketBytes, RetransmissionsAreNoPayload) {
    sources::SocketBytes bytes(false); // supposed wrongly
    EXPECT_EQ(acked(bytes, {.acked = 1001, .sent = 1700, .retransmitted = 700}), 1000U);
    EXPECT_EQ(
        acked(bytes, {.state = TcpState::Close, .acked = 1002, .sent = 1700, .retransmitted = 700}),
        1000U);
}

TEST(SocketBytes, FinOfOurs) {
    for (const std::uint64_t syn : {0U, 1U}) {
        sources::SocketBytes bytes(syn == 0); // supposed wrongly
        EXPECT_EQ(acked(bytes, {.acked = 100 + syn, .sent = 100}), 100U);
        EXPECT_EQ(acked(bytes, {.state = TcpState::FinWait1, .acked = 100 + syn, .sent = 100}),
                  100U);
        EXPECT_EQ(acked(bytes, {.state = TcpState::FinWait2, .acked = 101 + syn, .sent = 100}),
                  100U);
        EXPECT_EQ(acked(bytes, {.state = TcpState::Close, .acked = 101 + syn, .sent = 100}), 100U);
    }
}

TEST(SocketBytes, EndThatWasNeverLookedAtBefore) {
    for (const std::uint64_t more : {0U, 1U, 2U}) { // SYN, FIN, both or none
        sources::SocketBytes bytes(true);
        EXPECT_EQ(acked(bytes, {.state = TcpState::Close, .acked = 100 + more, .sent = 100}), 100U);
    }
    // Reset with 60 in flight.
    sources::SocketBytes reset(true);
    EXPECT_EQ(acked(reset, {.state = TcpState::Close, .acked = 41, .sent = 100}), 40U);
}

TEST(SocketBytes, RefusedByAQueueOfTheNode) {
    sources::SocketBytes bytes(true);
    EXPECT_EQ(acked(bytes, {.acked = 101, .sent = 100}), 100U);
    // 50 were refused once.
    EXPECT_EQ(acked(bytes, {.acked = 201, .sent = 250}), 200U);
    EXPECT_EQ(acked(bytes, {.acked = 251, .sent = 350, .unacked_segments = 1}), 250U);
    EXPECT_EQ(acked(bytes, {.state = TcpState::Close, .acked = 302, .sent = 350}), 300U);
    // Already before the first look: then which end it is stays supposed.
    sources::SocketBytes late(true);
    EXPECT_EQ(acked(late, {.acked = 201, .sent = 250}), 200U);
    EXPECT_EQ(acked(late, {.state = TcpState::Close, .acked = 302, .sent = 350}), 300U);
    // After the last look: where the state shows the FIN, it is exact all the same.
    sources::SocketBytes later(true);
    EXPECT_EQ(acked(later, {.acked = 101, .sent = 100}), 100U);
    EXPECT_EQ(acked(later, {.state = TcpState::FinWait2, .acked = 302, .sent = 400}), 300U);
}

TEST(SocketBytes, FinInWhatIsNotSentYet) {
    sources::SocketBytes bytes(true);
    const auto unsent = [&](TcpState state, std::uint32_t n) {
        return bytes.update(socket_of({.state = state, .unacked_segments = 1, .unsent = n}))
            .unsent_bytes;
    };
    EXPECT_EQ(unsent(TcpState::Established, 100), 100U);
    EXPECT_EQ(unsent(TcpState::FinWait1, 101), 100U);
    EXPECT_EQ(unsent(TcpState::LastAck, 1), 0U);
    EXPECT_EQ(unsent(TcpState::Closing, 0), 0U);
}

TEST(SocketBytes, FinOfThePeerThatWasSeen) {
    for (const TcpState state : {TcpState::CloseWait, TcpState::LastAck, TcpState::Closing}) {
        sources::SocketBytes bytes(true);
        EXPECT_EQ(received(bytes, {.received = 100, .data_segments = 1}), 100U);
        EXPECT_EQ(received(bytes, {.state = state, .received = 201, .data_segments = 2}), 200U);
        EXPECT_EQ(received(bytes, {.state = TcpState::Close, .received = 201, .data_segments = 2}),
                  200U);
    }
}

TEST(SocketBytes, FinOfThePeerThatIsFoundAtTheEnd) {
    const Reading before{.received = 100, .data_segments = 1};
    sources::SocketBytes unread(true);
    EXPECT_EQ(received(unread, before), 100U);
    EXPECT_EQ(
        received(unread,
                 {.state = TcpState::Close, .received = 201, .data_segments = 2, .unread = 1}),
        200U);
    sources::SocketBytes without_data(true);
    EXPECT_EQ(received(without_data, before), 100U);
    EXPECT_EQ(
        received(without_data, {.state = TcpState::Close, .received = 101, .data_segments = 1}),
        100U);
    // There was none: this end closed first.
    sources::SocketBytes first(true);
    EXPECT_EQ(received(first, before), 100U);
    EXPECT_EQ(received(first, {.state = TcpState::Close, .received = 200, .data_segments = 2}),
              200U);
    sources::SocketBytes idle(true);
    EXPECT_EQ(received(idle, before), 100U);
    EXPECT_EQ(received(idle, {.state = TcpState::Close, .received = 100, .data_segments = 1}),
              100U);
    sources::SocketBytes one_byte(true);
    EXPECT_EQ(received(one_byte, before), 100U);
    EXPECT_EQ(received(one_byte, {.state = TcpState::Close, .received = 101, .data_segments = 2}),
              101U);
}

TEST(SocketBytes, KernelThatDoesNotCountWhatIsSent) {
    TcpSocket socket = socket_of({.acked = 101});
    socket.info->sent_bytes.reset();
    socket.info->retransmitted_bytes.reset();
    EXPECT_EQ(sources::SocketBytes(true).update(socket).acked_bytes, 100U);
    EXPECT_EQ(sources::SocketBytes(false).update(socket).acked_bytes, 101U);
    EXPECT_EQ(sources::SocketBytes(true).update(TcpSocket{}).acked_bytes, 0U);
}

sources::SocketPayload at_end(bool connected, const Reading &reading, sources::SocketFins fins) {
    return sources::SocketBytes(connected).end(socket_of(reading), fins);
}

// The kernel program says which FINs are in the last counters, and the counters which end it is.
TEST(SocketBytes, LastCountersOfASocketThatWasNeverRead) {
    const sources::SocketFins none, own{.sent = true}, theirs{.received = true},
        both{.sent = true, .received = true};
    for (const bool supposed : {false, true}) {
        EXPECT_EQ(at_end(supposed, {.state = TcpState::FinWait2, .acked = 1002, .sent = 1000}, own)
                      .acked_bytes,
                  1000U);
        EXPECT_EQ(at_end(supposed, {.state = TcpState::LastAck, .acked = 1001, .sent = 1000}, both)
                      .acked_bytes,
                  1000U);
        EXPECT_EQ(at_end(supposed, {.acked = 1001, .sent = 1000}, none).acked_bytes, 1000U);
        EXPECT_EQ(at_end(supposed, {.acked = 1000, .sent = 1000}, none).acked_bytes, 1000U);
    }
    EXPECT_EQ(at_end(true, {.state = TcpState::LastAck, .acked = 1, .received = 501}, theirs)
                  .received_bytes,
              500U);
    EXPECT_EQ(at_end(true, {.acked = 1, .received = 501}, none).received_bytes, 501U);
    // A queue of the node refused 300 bytes, which were sent again: NCCL's sender connects.
    EXPECT_EQ(
        at_end(true, {.state = TcpState::FinWait2, .acked = 1002, .sent = 1300}, own).acked_bytes,
        1000U);
    // Reset with 400 bytes on the way, and with its FIN unsent behind 50 more.
    const auto reset = at_end(true,
                              {.state = TcpState::FinWait1,
                               .acked = 601,
                               .sent = 1000,
                               .unacked_segments = 1,
                               .unsent = 51},
                              none);
    EXPECT_EQ(reset.acked_bytes, 600U);
    EXPECT_EQ(reset.unsent_bytes, 50U);
    EXPECT_EQ(sources::SocketBytes(true).end(TcpSocket{}, none).acked_bytes, 0U);
}

} // namespace
} // namespace collwire::netlink
