// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "collwire/roce.h"
#include "collwire/wire_records.h"

namespace {

TEST(Psn, DistanceGoesRoundTheCircle) {
    EXPECT_EQ(cw_psn_distance(5, 3), 2);
    EXPECT_EQ(cw_psn_distance(3, 5), -2);
    EXPECT_EQ(cw_psn_distance(0, 0xffffff), 1);
    EXPECT_EQ(cw_psn_distance(0xffffff, 0), -1);
    EXPECT_EQ(cw_psn_distance(0x7fffff, 0), 0x7fffff);
    EXPECT_EQ(cw_psn_distance(0x800000, 0), -0x800000);
    EXPECT_EQ(cw_psn_add(0xfffffe, 3), 1u);
}

// The values were computed by hand from include/rdma/ib_verbs.h.
TEST(UdpSport, FollowsTheKernelsRule) {
    EXPECT_EQ(cw_udp_sport(1, 17, 17), 0xc001);
    EXPECT_EQ(cw_udp_sport(0xfffff, 17, 17), 0xffc0);
    // 17 * 17 = 289, below 2^14: the low bits alone
    EXPECT_EQ(cw_udp_sport(0, 17, 17), 0xc000 | 289);
    // 0x1000 * 0x1000 = 2^24: v ^ v>>20 = 2^24 | 16, of which 20 bits are 16
    EXPECT_EQ(cw_udp_sport(0, 0x1000, 0x1000), 0xc010);
}

TEST(UdpSport, IsTheSameAtBothEnds) {
    for (unsigned a = 1; a < 0x1000000; a = a * 5 + 3)
        for (unsigned b = 7; b < 0x1000000; b = b * 3 + 1) {
            EXPECT_EQ(cw_udp_sport(0, a, b), cw_udp_sport(0, b, a));
            EXPECT_GE(cw_udp_sport(0, a, b), 0xc000);
        }
}

TEST(Bth, ClassesOfReliableFrames) {
    for (const int opcode : {0x00, 0x01, 0x04, 0x06, 0x0a, 0x0b, 0x0c, 0x13, 0x14, 0x17, 0x1c})
        EXPECT_EQ(cw_bth_class(static_cast<__u8>(opcode)), CW_WIRE_REQUEST) << opcode;
    for (const int opcode : {0x0d, 0x0e, 0x0f, 0x10, 0x12})
        EXPECT_EQ(cw_bth_class(static_cast<__u8>(opcode)), CW_WIRE_RESPONSE) << opcode;
    EXPECT_EQ(cw_bth_class(0x11), CW_WIRE_ACK);
    EXPECT_EQ(cw_bth_class(0x81), CW_WIRE_ACK) << "congestion notification";
    EXPECT_EQ(cw_bth_class(0x64), CW_WIRE_REQUEST) << "UD SEND_ONLY";
}

// Frame lengths of RoCE v2 over IPv4 as captures show them; transport bytes are those less 42.
TEST(Bth, PayloadOfFramesFromTheWire) {
    const auto payload = [](int opcode, int pad, unsigned frame_bytes) {
        return cw_bth_payload_bytes(static_cast<__u8>(opcode), static_cast<__u8>(pad << 4),
                                    frame_bytes - 42);
    };
    EXPECT_EQ(payload(0x06, 0, 1098), 1024) << "WRITE_FIRST";
    EXPECT_EQ(payload(0x07, 0, 1082), 1024) << "WRITE_MIDDLE";
    EXPECT_EQ(payload(0x0b, 0, 78), 0) << "empty WRITE_ONLY with immediate";
    EXPECT_EQ(payload(0x11, 0, 62), 0) << "ACK";
    EXPECT_EQ(payload(0x04, 3, 62), 1) << "SEND_ONLY of one byte, three of padding";
    EXPECT_EQ(payload(0x0c, 0, 74), 0) << "READ request";
    EXPECT_EQ(payload(0x0d, 0, 1086), 1024) << "READ response FIRST";
    EXPECT_EQ(payload(0x0e, 0, 1082), 1024) << "READ response MIDDLE";
    EXPECT_EQ(payload(0x12, 0, 70), 8) << "ATOMIC acknowledge";
    EXPECT_EQ(payload(0x13, 0, 86), 0) << "COMPARE_SWAP";
    EXPECT_EQ(payload(0x64, 0, 1066), 1000) << "UD SEND_ONLY";
    EXPECT_EQ(payload(0x1d, 0, 82), 8) << "ATOMIC_WRITE";
}

TEST(Bth, WhatCannotBeIsNoPayload) {
    EXPECT_EQ(cw_bth_payload_bytes(0x06, 0, 20), -1) << "shorter than its headers";
    EXPECT_EQ(cw_bth_payload_bytes(0x1f, 0, 1000), -1) << "no such operation";
    EXPECT_EQ(cw_bth_payload_bytes(0x2c, 0, 1000), -1) << "UC has no READ";
    EXPECT_EQ(cw_bth_payload_bytes(0x66, 0, 1000), -1) << "UD has no WRITE";
    EXPECT_EQ(cw_bth_payload_bytes(0x44, 0, 1000), -1) << "RD";
}

TEST(Read, TakesOnePsnPerResponse) {
    EXPECT_EQ(cw_read_psns(0, 1024), 1u);
    EXPECT_EQ(cw_read_psns(1, 1024), 1u);
    EXPECT_EQ(cw_read_psns(1024, 1024), 1u);
    EXPECT_EQ(cw_read_psns(1025, 1024), 2u);
    EXPECT_EQ(cw_read_psns(0xffffffff, 256), 16777216u);
    EXPECT_EQ(cw_read_psns(5000, 0), 1u) << "path MTU not known";
    EXPECT_EQ(cw_mtu_bytes(3), 1024u);
    EXPECT_EQ(cw_mtu_bytes(5), 4096u);
    EXPECT_EQ(cw_mtu_bytes(0), 0u);
    EXPECT_EQ(cw_mtu_bytes(6), 0u);
}

} // namespace
