// SPDX-License-Identifier: Apache-2.0
// Worked numbers: each total is written out as header sizes, or taken from a frame's known length.
#include <gtest/gtest.h>

#include "collwire/post_records.h"
#include "collwire/verbs.h"
#include "correlate/wire/overhead.h"

namespace collwire::wire {
namespace {

void post(cw_post_counters &posts, cw_post_class post_class, std::uint64_t length) {
    cw_post_sum sum{};
    cw_count_wr(&sum, post_class, length);
    cw_post_class_counters &c = posts.classes[post_class];
    c.wrs += sum.counters.wrs;
    c.zero_length_wrs += sum.counters.zero_length_wrs;
    c.bytes += sum.counters.bytes;
    c.pad_bytes += sum.counters.pad_bytes;
    for (unsigned i = 0; i < CW_MTU_CLASSES; ++i) {
        c.packets[i] += sum.counters.packets[i];
        if (post_class == CW_POST_READ)
            posts.multi_packet_reads[i] += sum.multi_packet[i];
    }
}

WirePath rc(std::uint32_t mtu, WireProtocol protocol = WireProtocol::RoceV2Ipv4) {
    return {.protocol = protocol, .path_mtu_bytes = mtu, .qp_type = 2};
}

TEST(PostedWire, OneMebibyteWrite) {
    cw_post_counters posts{};
    post(posts, CW_POST_WRITE, 1u << 20);
    // 256 packets of 58 bytes of headers, one RETH
    EXPECT_EQ(posted_wire(posts, rc(4096))->request_bytes, 1'063'440u);
    EXPECT_EQ(posted_wire(posts, rc(4096))->request_frames, 256u);
    EXPECT_EQ(posted_wire(posts, rc(2048))->request_bytes, (1u << 20) + 512u * 58 + 16);
    EXPECT_EQ(posted_wire(posts, rc(1024))->request_bytes, (1u << 20) + 1024u * 58 + 16);
    EXPECT_EQ(posted_wire(posts, rc(4096, WireProtocol::RoceV2Ipv6))->request_bytes,
              (1u << 20) + 256u * 78 + 16);
    EXPECT_EQ(posted_wire(posts, rc(4096))->response_bytes, 0u);
}

TEST(PostedWire, HalfMebibyteWrite) {
    cw_post_counters posts{};
    post(posts, CW_POST_WRITE, 512u << 10);
    EXPECT_EQ(posted_wire(posts, rc(4096))->request_bytes, 531'728u);
}

TEST(PostedWire, EmptyWriteWithImmediate) {
    cw_post_counters posts{};
    post(posts, CW_POST_WRITE_IMM, 0);
    EXPECT_EQ(posted_wire(posts, rc(1024))->request_bytes, 78u);
    EXPECT_EQ(posted_wire(posts, rc(1024))->request_frames, 1u);
}

TEST(PostedWire, PaddingIsOnlyInTheLastPacket) {
    cw_post_counters posts{};
    post(posts, CW_POST_SEND, 1025);
    EXPECT_EQ(posted_wire(posts, rc(1024))->request_bytes, (58u + 1024) + (58u + 1 + 3));
    post(posts, CW_POST_SEND_INV, 2);
    post(posts, CW_POST_SEND_IMM, 3);
    EXPECT_EQ(posted_wire(posts, rc(1024))->request_bytes,
              (58u + 1024) + (58u + 4) + (58u + 4 + 4) + (58u + 4 + 4));
}

TEST(PostedWire, ReadResponsesHaveOneOrTwoAeth) {
    cw_post_counters posts{};
    post(posts, CW_POST_READ, 10);
    post(posts, CW_POST_READ, 3000);
    const auto wire = posted_wire(posts, rc(1024));
    ASSERT_TRUE(wire);
    EXPECT_EQ(wire->request_frames, 2u);
    EXPECT_EQ(wire->request_bytes, 2 * (58u + 16));
    EXPECT_EQ(wire->response_frames, 4u);
    EXPECT_EQ(wire->response_bytes,
              (58u + 4 + 10 + 2) + (58u + 4 + 1024) + (58u + 1024) + (58u + 4 + 952));
    // At 4096 both are one packet.
    EXPECT_EQ(posted_wire(posts, rc(4096))->response_bytes, (58u + 4 + 12) + (58u + 4 + 3000));
}

TEST(PostedWire, AtomicsFlushAndAtomicWrite) {
    cw_post_counters posts{};
    post(posts, CW_POST_ATOMIC, 8);
    EXPECT_EQ(posted_wire(posts, rc(1024))->request_bytes, 58u + 28);
    EXPECT_EQ(posted_wire(posts, rc(1024))->response_bytes, 58u + 4 + 8);
    posts = {};
    post(posts, CW_POST_FLUSH, 0);
    EXPECT_EQ(posted_wire(posts, rc(1024))->request_bytes, 58u + 4 + 16);
    EXPECT_EQ(posted_wire(posts, rc(1024))->response_bytes, 58u + 4);
    posts = {};
    post(posts, CW_POST_ATOMIC_WRITE, 8);
    EXPECT_EQ(posted_wire(posts, rc(1024))->request_bytes, 58u + 16 + 8);
    EXPECT_EQ(posted_wire(posts, rc(1024))->response_bytes, 58u + 4);
}

TEST(PostedWire, OtherTransportsAndLinks) {
    cw_post_counters posts{};
    post(posts, CW_POST_SEND, 100);
    WirePath path = rc(2048);
    path.qp_type = 4; // UD
    EXPECT_EQ(posted_wire(posts, path)->request_bytes, 58u + 8 + 100);
    path.qp_type = 9; // XRC
    EXPECT_EQ(posted_wire(posts, path)->request_bytes, 58u + 4 + 100);
    path.qp_type = 3; // UC
    path.vlan = true;
    EXPECT_EQ(posted_wire(posts, path)->request_bytes, 62u + 100);
    path.vlan = false;
    path.protocol = WireProtocol::InfiniBand;
    EXPECT_EQ(posted_wire(posts, path)->request_bytes, 8u + 12 + 100 + 4 + 2);
    path.grh = true;
    EXPECT_EQ(posted_wire(posts, path)->request_bytes, 8u + 40 + 12 + 100 + 4 + 2);
    path.protocol = WireProtocol::RoceV1;
    EXPECT_EQ(posted_wire(posts, path)->request_bytes, 14u + 40 + 12 + 100 + 4);
}

TEST(PostedWire, LocalRequestsSendNothing) {
    cw_post_counters posts{};
    post(posts, CW_POST_LOCAL, 0);
    EXPECT_EQ(posted_wire(posts, rc(1024))->request_frames, 0u);
    EXPECT_EQ(posted_wire(posts, rc(1024))->request_bytes, 0u);
}

TEST(PostedWire, UnknownIsNothing) {
    cw_post_counters posts{};
    post(posts, CW_POST_SEND, 100);
    for (const std::uint32_t mtu : {0u, 1u, 1500u, 8192u})
        EXPECT_FALSE(posted_wire(posts, rc(mtu)));
    post(posts, CW_POST_OTHER, 100);
    EXPECT_FALSE(posted_wire(posts, rc(1024)));
    cw_post_counters absurd{};
    absurd.classes[CW_POST_SEND].packets[2] = ~std::uint64_t{0};
    EXPECT_FALSE(posted_wire(absurd, rc(1024)));
}

TEST(CountedRequest, Arithmetic) {
    for (unsigned mtu = 0; mtu < CW_MTU_CLASSES; ++mtu) {
        const std::uint64_t size = 256u << mtu;
        EXPECT_EQ(cw_packets(0, mtu), 1u);
        EXPECT_EQ(cw_packets(1, mtu), 1u);
        EXPECT_EQ(cw_packets(size, mtu), 1u);
        EXPECT_EQ(cw_packets(size + 1, mtu), 2u);
        EXPECT_EQ(cw_packets(3 * size, mtu), 3u);
    }
    for (std::uint64_t n = 0; n < 12; ++n)
        EXPECT_EQ((n + cw_pad_bytes(n)) % 4, 0u);
    EXPECT_EQ(cw_is_zero(0), 1u);
    EXPECT_EQ(cw_is_zero(1), 0u);
    EXPECT_EQ(cw_is_zero(~std::uint64_t{0} >> 2), 0u);
    EXPECT_EQ(cw_payload_bytes(CW_POST_ATOMIC, 64), 8u);
    EXPECT_EQ(cw_payload_bytes(CW_POST_FLUSH, 64), 0u);
    EXPECT_EQ(cw_payload_bytes(CW_POST_LOCAL, 64), 0u);
    EXPECT_EQ(cw_payload_bytes(CW_POST_SEND, 64), 64u);
}

TEST(CountedRequest, ClassOfOpcode) {
    const std::uint32_t classes[] = {
        CW_POST_WRITE, CW_POST_WRITE_IMM, CW_POST_SEND,   CW_POST_SEND_IMM,
        CW_POST_READ,  CW_POST_ATOMIC,    CW_POST_ATOMIC, CW_POST_LOCAL,
        CW_POST_LOCAL, CW_POST_SEND_INV,  CW_POST_OTHER,  CW_POST_OTHER,
        CW_POST_OTHER, CW_POST_OTHER,     CW_POST_FLUSH,  CW_POST_ATOMIC_WRITE};
    for (std::uint32_t opcode = 0; opcode < 16; ++opcode)
        EXPECT_EQ(cw_post_class_of_opcode(opcode), classes[opcode]) << opcode;
    for (const std::uint32_t opcode : {16u, 17u, 0x80000000u, ~0u})
        EXPECT_EQ(cw_post_class_of_opcode(opcode), static_cast<std::uint32_t>(CW_POST_OTHER));
}

} // namespace
} // namespace collwire::wire
