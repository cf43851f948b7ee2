// SPDX-License-Identifier: Apache-2.0
#include "collwire/node_records.h"
#include "collwire/post_records.h"
#include "collwire/qp_records.h"
#include "correlate/model/posted.h"

#include <functional>

#include "tests/support/model_of.h"

namespace collwire::model {
namespace {

using namespace collwire::test;

// `n` messages of `bytes` each, as the probes count them.
cw_post_counters posts_of(cw_post_class post_class, std::uint64_t n, std::uint64_t bytes) {
    cw_post_counters posts{};
    cw_post_class_counters &counters = posts.classes[post_class];
    counters.wrs = n;
    counters.bytes = n * bytes;
    counters.pad_bytes = n * ((4 - bytes % 4) % 4);
    for (std::size_t mtu = 0; mtu < CW_MTU_CLASSES; ++mtu) {
        const std::uint64_t mtu_bytes = 256ULL << mtu;
        counters.packets[mtu] = n * std::max<std::uint64_t>(1, (bytes + mtu_bytes - 1) / mtu_bytes);
        if (post_class == CW_POST_READ && bytes > mtu_bytes)
            posts.multi_packet_reads[mtu] = n;
    }
    return posts;
}

// An RC queue pair over IPv4 with a path MTU of 1024, and its port.
struct Link {
    Qp qp;
    Port port;
    Link() {
        qp.type = 2;
        qp.flags = CW_QP_ADDRESS | CW_QP_GRH | CW_QP_SGID | CW_QP_PATH_MTU;
        qp.address.path_mtu = 3;
        qp.address.gid_type = CW_GID_ROCE_V2;
        std::memcpy(qp.address.dgid, ipv4_gid(2).data(), 16);
        port.link_layer = CW_LINK_ETHERNET;
        port.gids = {ipv4_gid(1)};
    }
    [[nodiscard]] PostedBytes bytes(cw_post_class post_class, std::uint64_t n,
                                    std::uint64_t length) const {
        return posted_bytes(qp, &port, posts_of(post_class, n, length));
    }
};

TEST(ModelPosted, FramesOfEachKindOfRequest) {
    const Link link;
    // Ethernet 14, IPv4 20, UDP 8, BTH 12, ICRC 4
    EXPECT_EQ(link.bytes(CW_POST_SEND, 1, 1000).request_wire_bytes, 58 + 1000U);
    EXPECT_EQ(link.bytes(CW_POST_SEND, 1, 1001).request_wire_bytes, 58 + 1001 + 3U)
        << "padded to 4";
    EXPECT_EQ(link.bytes(CW_POST_SEND_IMM, 1, 1000).request_wire_bytes, 58 + 4 + 1000U);
    EXPECT_EQ(link.bytes(CW_POST_SEND_INV, 1, 1000).request_wire_bytes, 58 + 4 + 1000U);
    // The READ/WRITE header only in the first frame of a message
    EXPECT_EQ(link.bytes(CW_POST_WRITE, 3, 4000).request_wire_bytes, 3 * (4 * 58 + 16 + 4000U));
    EXPECT_EQ(link.bytes(CW_POST_WRITE_IMM, 1, 0).request_wire_bytes, 58 + 16 + 4U);
    EXPECT_EQ(link.bytes(CW_POST_ATOMIC, 2, 8).request_wire_bytes, 2 * (58 + 28U));
    EXPECT_EQ(link.bytes(CW_POST_ATOMIC, 2, 8).response_wire_bytes, 2 * (58 + 4 + 8U));
    EXPECT_EQ(link.bytes(CW_POST_LOCAL, 2, 8).request_wire_bytes, 0U);
    // 1 MiB over IPv4 at a path MTU of 4096 is 1,063,440 bytes, the RETH included
    Link large;
    large.qp.address.path_mtu = 5;
    EXPECT_EQ(large.bytes(CW_POST_WRITE, 1, 1 << 20).request_wire_bytes, 1'063'440U);
}

TEST(ModelPosted, ReadResponsesHaveAethInFirstAndLastFrame) {
    const Link link;
    EXPECT_EQ(link.bytes(CW_POST_READ, 2, 1000).request_wire_bytes, 2 * (58 + 16U));
    EXPECT_EQ(link.bytes(CW_POST_READ, 2, 1000).response_wire_bytes, 2 * (58 + 4 + 1000U));
    EXPECT_EQ(link.bytes(CW_POST_READ, 2, 3000).response_wire_bytes, 2 * (3 * 58 + 2 * 4 + 3000U));
    EXPECT_EQ(link.bytes(CW_POST_READ, 2, 3000).read_payload_bytes, 6000U);
    EXPECT_EQ(link.bytes(CW_POST_READ, 2, 3000).tx_payload_bytes, 0U);
    // One answer of one frame, one of nine: each of the two has its own acknowledgement headers.
    cw_post_counters mixed = posts_of(CW_POST_READ, 1, 9001);
    const cw_post_counters small = posts_of(CW_POST_READ, 1, 64);
    cw_post_class_counters &reads = mixed.classes[CW_POST_READ];
    reads.wrs += 1;
    reads.bytes += 64;
    for (std::size_t mtu = 0; mtu < CW_MTU_CLASSES; ++mtu)
        reads.packets[mtu] += small.classes[CW_POST_READ].packets[mtu];
    EXPECT_EQ(posted_bytes(link.qp, &link.port, mixed).response_wire_bytes,
              (9 * 58 + 2 * 4 + 9001 + 3) + (58 + 4 + 64U));
}

TEST(ModelPosted, OtherLinks) {
    Link ipv6;
    ipv6.qp.address.dgid[0] = 0x20;
    EXPECT_EQ(ipv6.bytes(CW_POST_SEND, 1, 1000).request_wire_bytes, 78 + 1000U);
    Link version1;
    version1.qp.address.gid_type = CW_GID_ROCE_V1;
    EXPECT_EQ(version1.bytes(CW_POST_SEND, 1, 1000).request_wire_bytes, 14 + 40 + 12 + 4 + 1000U);
    Link infiniband;
    infiniband.port.link_layer = CW_LINK_INFINIBAND;
    infiniband.qp.flags &= ~std::uint32_t{CW_QP_GRH};
    EXPECT_EQ(infiniband.bytes(CW_POST_SEND, 1, 1000).request_wire_bytes, 8 + 12 + 4 + 2 + 1000U);
    infiniband.qp.flags |= CW_QP_GRH;
    EXPECT_EQ(infiniband.bytes(CW_POST_SEND, 1, 1000).request_wire_bytes,
              8 + 40 + 12 + 4 + 2 + 1000U);
    Link datagram;
    datagram.qp.type = 4;
    datagram.qp.flags = CW_QP_SGID;
    EXPECT_EQ(datagram.bytes(CW_POST_SEND, 2, 1000).request_wire_bytes, 2 * (58 + 8 + 1000U));
    EXPECT_TRUE(datagram.bytes(CW_POST_SEND, 2, 1000).assumed_ipv4);
}

TEST(ModelPosted, UnknownBytesAreNull) {
    Link no_mtu;
    no_mtu.qp.flags &= ~std::uint32_t{CW_QP_PATH_MTU};
    EXPECT_FALSE(no_mtu.bytes(CW_POST_SEND, 1, 1000).request_wire_bytes);
    EXPECT_EQ(no_mtu.bytes(CW_POST_SEND, 1, 1000).tx_payload_bytes, 1000U);
    EXPECT_EQ(no_mtu.bytes(CW_POST_SEND, 0, 0).request_wire_bytes, 0U) << "nothing posted";
    Link no_address;
    no_address.qp.flags = CW_QP_PATH_MTU;
    EXPECT_FALSE(no_address.bytes(CW_POST_SEND, 1, 1000).request_wire_bytes);
    EXPECT_FALSE(Link().bytes(CW_POST_OTHER, 1, 1000).request_wire_bytes);
    EXPECT_FALSE(posted_bytes(Link().qp, nullptr, posts_of(CW_POST_SEND, 1, 1)).request_wire_bytes);
}

} // namespace
} // namespace collwire::model
