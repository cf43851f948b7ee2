// SPDX-License-Identifier: Apache-2.0
// Answers and notices of Linux 6.18 as they came, as an older kernel would cut them, and damaged.
#include <gtest/gtest.h>

#include <cstring>
#include <string_view>
#include <vector>

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <sys/socket.h>

#include "userspace/netlink/sock_diag.h"

namespace collwire::netlink {
namespace {

// The end that connected, 127.0.0.1, has sent 100,000 bytes and got 10 that it has not read.
constexpr std::string_view ANSWER = "980100001400000007000000f5ab9af102010000be508d5f7f000001000000"
                                    "0000000000000000007f00000100000000"
                                    "0000000000000000000000000110000000000000000000000a000000000000"
                                    "000000000060d143050500080000000000"
                                    "08000f00000000000c001500010000000000000006001600520000001c0102"
                                    "00010000000007aa00e01c0300409c0000"
                                    "00ba0000180200000000000000000000000000000000000000000000640000"
                                    "00000000006400000064000000ffff0000"
                                    "d7ff00001b0000000e000000ffffff7f0d000000cbff000003000000000000"
                                    "00d7ff0000000000000efb130707000000"
                                    "ffffffffffffffffa1860100000000000a0000000000000006000000030000"
                                    "0000000000030000000100000003000000"
                                    "e8220302010000000000000000000000000000000000000000000000000000"
                                    "000400000000000000a086010000000000"
                                    "00000000000000000000000000000000000000000070000000000100000000"
                                    "0000000000000000000000000000000000"
                                    "000000000000000000000000000000000000000000000000";

constexpr std::string_view NOT_THERE =
    "5c0000000200000007000000f5ab9af1feffffff4800000014000100070000000000000002060200ffffffffbe508d"
    "60"
    "7f0000010000000000000000000000007f00000100000000000000000000000000000000ffffffffffffffff";

constexpr std::string_view DONE = "140000000300020009000000f5ab9af100000000";

// The same socket, closed with 10 bytes unread.
constexpr std::string_view NOTICE =
    "7c01000014000000000000000000000002070000be508d5f7f0000010000000000000000000000007f000001000000"
    "00"
    "0000000000000000000000000110000000000000000000000a00000000000000000000000000000005000a00060000"
    "00"
    "1c010200070000000007aa00e01c0300409c000000ba00001802000000000000000000000000000000000000000000"
    "00"
    "64000000000000006400000000000000ffff0000d7ff00001b0000000e000000ffffff7f0d000000cbff0000030000"
    "00"
    "00000000d7ff0000000000000efb130707000000ffffffffffffffffa1860100000000000a00000000000000070000"
    "00"
    "0400000000000000030000000100000003000000e82203020100000000000000000000000000000000000000000000"
    "00"
    "000000000400000000000000a086010000000000000000000000000000000000000000000000000000740100000001"
    "00"
    "0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000";

// Both ends of a connection over ::1, of a dump.
constexpr std::string_view TWO_OF_IPV6 = "980100001400020009000000f5ab9af10a010000dfaca991000000000"
                                         "000000000000000000000010000000000000000"
                                         "000000000000000100000000041000000000000000000000030000000"
                                         "0000000000000005dcd43050500080000000000"
                                         "08000f00000000000c001500010000000000000006001600120000001"
                                         "c010200010000000007aa01e01c0300409c0000"
                                         "008000001802000000000000000000000000000000000000000000003"
                                         "000000000000000300000003000000000000100"
                                         "c4ff00004b00000025000000ffffff7f0a000000b8ff0000030000000"
                                         "0000000c4ff000000000000611c6ae702000000"
                                         "ffffffffffffffff01000000000000000300000000000000030000000"
                                         "2000000000000004b0000000100000000000000"
                                         "000000000000000000000000000000000000000000000000000000000"
                                         "000000001000000000000000000000000000000"
                                         "000000000000000000000000000000000000000000000100000001000"
                                         "000000000000000000000000000000000000000"
                                         "000000000000000000000000000000000000000000000000980100001"
                                         "400020009000000f5ab9af10a010000a991dfac"
                                         "000000000000000000000000000000010000000000000000000000000"
                                         "000000100000000051000000000000000000000"
                                         "0000000000000000000000005ecd4305050008000000000008000f000"
                                         "00000000c001500010000000000000006001600"
                                         "120000001c010200010000000007aa01e01c030000000000008000001"
                                         "802000000000000000000000000000000000000"
                                         "000000003000000000000000300000003000000000000100b8ff00000"
                                         "f00000008000000ffffff7f0b000000b8ff0000"
                                         "0300000000000000b8ff000000000000f08660d30c000000fffffffff"
                                         "fffffff03000000000000000000000000000000"
                                         "010000000300000000000000060000000000000001000000555585450"
                                         "100000000000000000000000000000000000000"
                                         "000000000000000002000000000000000300000000000000000000000"
                                         "000000000000000000000000000000000000100"
                                         "000001000000000000000000000000000000000000000000000000000"
                                         "000000000000000000000000000000000000000";

constexpr std::size_t INFO_AT = 16 + 72 + 8 + 8 + 12 + 8; // of ANSWER

std::vector<std::byte> bytes_of(std::string_view hex) {
    const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
    std::vector<std::byte> bytes;
    for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
        bytes.push_back(static_cast<std::byte>(digit(hex[i]) * 16 + digit(hex[i + 1])));
    return bytes;
}

std::vector<SockDiagMessage> parsed(const std::vector<std::byte> &bytes) {
    std::vector<SockDiagMessage> messages;
    const auto result = parse_sock_diag(bytes, messages);
    EXPECT_TRUE(result) << result.failure().message;
    return messages;
}

std::array<std::uint8_t, 16> ipv4_loopback() {
    return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1};
}

// The answer of a kernel whose struct tcp_info has so many bytes.
std::vector<std::byte> with_info_of(std::size_t info_bytes) {
    auto bytes = bytes_of(ANSWER);
    bytes.resize(INFO_AT + sizeof(nlattr) + info_bytes);
    nlattr info{};
    std::memcpy(&info, bytes.data() + INFO_AT, sizeof(info));
    EXPECT_EQ(info.nla_type, INET_DIAG_INFO);
    info.nla_len = static_cast<__u16>(sizeof(info) + info_bytes);
    std::memcpy(bytes.data() + INFO_AT, &info, sizeof(info));
    const auto length = static_cast<std::uint32_t>(bytes.size());
    std::memcpy(bytes.data(), &length, sizeof(length));
    return bytes;
}

TEST(SockDiagParser, Answer) {
    const auto messages = parsed(bytes_of(ANSWER));
    ASSERT_EQ(messages.size(), 1U);
    EXPECT_EQ(messages[0].sequence, 7U);
    EXPECT_EQ(messages[0].error, 0);
    EXPECT_FALSE(messages[0].done);
    ASSERT_TRUE(messages[0].socket);
    const TcpSocket &socket = *messages[0].socket;
    EXPECT_EQ(socket.id.family, AF_INET);
    EXPECT_EQ(socket.id.local_address, ipv4_loopback());
    EXPECT_EQ(socket.id.remote_address, ipv4_loopback());
    EXPECT_EQ(socket.id.local_port, 48720);
    EXPECT_EQ(socket.id.remote_port, 36191);
    EXPECT_EQ(socket.id.interface, 0U);
    EXPECT_EQ(socket.id.cookie, 0x1001U);
    EXPECT_EQ(socket.state, static_cast<std::uint8_t>(TcpState::Established));
    EXPECT_EQ(socket.inode, 0x0543d160U);
    EXPECT_EQ(socket.unread_bytes, 10U);
    ASSERT_TRUE(socket.info);
    const TcpInfo &info = *socket.info;
    EXPECT_EQ(info.state, static_cast<std::uint8_t>(TcpState::Established));
    EXPECT_EQ(info.acked_bytes, 100'001U);
    EXPECT_EQ(info.received_bytes, 10U);
    EXPECT_EQ(info.sent_bytes, 100'000U);
    EXPECT_EQ(info.retransmitted_bytes, 0U);
    EXPECT_EQ(info.unsent_bytes, 0U);
    EXPECT_EQ(info.unacked_segments, 0U);
    EXPECT_EQ(info.sent_segments, 6U);
    EXPECT_EQ(info.received_segments, 3U);
    EXPECT_EQ(info.received_data_segments, 1U);
    EXPECT_EQ(info.retransmitted_segments, 0U);
    EXPECT_EQ(info.rtt_us, 27U);
    EXPECT_EQ(info.mss_bytes, 0xba00U);
}

TEST(SockDiagParser, NoticeOfTheEnd) {
    const auto messages = parsed(bytes_of(NOTICE));
    ASSERT_EQ(messages.size(), 1U);
    ASSERT_TRUE(messages[0].socket);
    const TcpSocket &socket = *messages[0].socket;
    EXPECT_EQ(socket.id.cookie, 0x1001U);
    EXPECT_EQ(socket.inode, 0U);
    EXPECT_EQ(socket.state, static_cast<std::uint8_t>(TcpState::Close));
    ASSERT_TRUE(socket.info);
    EXPECT_EQ(socket.info->acked_bytes, 100'001U);
    EXPECT_EQ(socket.info->received_bytes, 10U);
}

TEST(SockDiagParser, NotThereAndDone) {
    auto bytes = bytes_of(NOT_THERE);
    const auto done = bytes_of(DONE);
    bytes.insert(bytes.end(), done.begin(), done.end());
    const auto messages = parsed(bytes);
    ASSERT_EQ(messages.size(), 2U);
    EXPECT_EQ(messages[0].sequence, 7U);
    EXPECT_EQ(messages[0].error, ENOENT);
    EXPECT_FALSE(messages[0].socket);
    EXPECT_FALSE(messages[0].done);
    EXPECT_EQ(messages[1].sequence, 9U);
    EXPECT_EQ(messages[1].error, 0);
    EXPECT_TRUE(messages[1].done);
}

TEST(SockDiagParser, SeveralOfIpv6) {
    const auto messages = parsed(bytes_of(TWO_OF_IPV6));
    ASSERT_EQ(messages.size(), 2U);
    std::array<std::uint8_t, 16> loopback{};
    loopback[15] = 1;
    for (const SockDiagMessage &message : messages) {
        ASSERT_TRUE(message.socket && message.socket->info);
        EXPECT_EQ(message.socket->id.family, AF_INET6);
        EXPECT_EQ(message.socket->id.local_address, loopback);
        EXPECT_EQ(message.socket->id.remote_address, loopback);
    }
    EXPECT_EQ(messages[0].socket->info->received_bytes, 3U);
    EXPECT_EQ(messages[1].socket->info->acked_bytes, 3U);
    EXPECT_EQ(messages[0].socket->id.local_port, messages[1].socket->id.remote_port);
}

TEST(SockDiagParser, OlderKernelsKnowLess) {
    const auto info_of = [](std::size_t bytes) { return *parsed(with_info_of(bytes))[0].socket; };
    const TcpSocket of_5_10 = info_of(232);
    EXPECT_EQ(of_5_10.info->sent_bytes, 100'000U);
    EXPECT_EQ(of_5_10.info->retransmitted_bytes, 0U);
    const TcpSocket of_4_18 = info_of(200);
    EXPECT_FALSE(of_4_18.info->sent_bytes);
    EXPECT_FALSE(of_4_18.info->retransmitted_bytes);
    EXPECT_EQ(of_4_18.info->unsent_bytes, 0U);
    EXPECT_EQ(of_4_18.info->acked_bytes, 100'001U);
    const TcpSocket of_4_1 = info_of(136);
    EXPECT_FALSE(of_4_1.info->unsent_bytes);
    EXPECT_FALSE(of_4_1.info->sent_segments);
    EXPECT_EQ(of_4_1.info->received_bytes, 10U);
    const TcpSocket of_3_10 = info_of(104);
    EXPECT_FALSE(of_3_10.info->acked_bytes);
    EXPECT_FALSE(of_3_10.info->received_bytes);
    EXPECT_EQ(of_3_10.info->retransmitted_segments, 0U);
    EXPECT_EQ(of_3_10.info->rtt_us, 27U);
    // In the middle of a counter.
    EXPECT_FALSE(info_of(204).info->sent_bytes);
    EXPECT_FALSE(info_of(0).info->rtt_us);
}

TEST(SockDiagParser, CutAnywhere) {
    const auto whole = bytes_of(TWO_OF_IPV6);
    for (std::size_t size = 0; size < whole.size(); ++size) {
        // Of its own length, for the sanitizer.
        const std::vector<std::byte> part(whole.begin(), whole.begin() + static_cast<long>(size));
        std::vector<SockDiagMessage> messages;
        const auto result = parse_sock_diag(part, messages);
        const bool is_whole = size == 0 || size == whole.size() / 2;
        EXPECT_EQ(result.ok(), is_whole) << size;
        EXPECT_EQ(messages.size(), size < whole.size() / 2 ? 0U : 1U) << size;
    }
}

TEST(SockDiagParser, LengthsThatAreNotTrue) {
    const auto with_u32 = [](std::size_t at, std::uint32_t value) {
        auto bytes = bytes_of(ANSWER);
        std::memcpy(bytes.data() + at, &value, sizeof(value));
        return bytes;
    };
    std::vector<SockDiagMessage> messages;
    for (const std::uint32_t length : {0U, 15U, 16U, 87U, 409U, ~0U})
        EXPECT_FALSE(parse_sock_diag(with_u32(0, length), messages)) << length;
    EXPECT_TRUE(messages.empty());
    // An attribute of no length, of one too great.
    for (const std::uint32_t head : {0x00020000U, 0x00020003U, 0x0002ffffU}) {
        const auto read = parsed(with_u32(INFO_AT, head));
        ASSERT_TRUE(read[0].socket);
        EXPECT_FALSE(read[0].socket->info) << head;
    }
}

} // namespace
} // namespace collwire::netlink
