// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "collwire/mlx5_prm.h"
#include "collwire/qp_records.h"

namespace {

using Command = std::array<__u8, CW_MLX5_COMMAND_BYTES>;

// Sets bits of a command as mlx5_ifc.h numbers them: from the top bit of the first byte.
void set_bits(Command &command, unsigned begin, unsigned n_bits, std::uint64_t value) {
    for (unsigned i = 0; i < n_bits; ++i) {
        const unsigned bit = begin + n_bits - 1 - i;
        const auto mask = static_cast<__u8>(0x80 >> (bit % 8));
        auto &byte = command.at(bit / 8);
        byte = static_cast<__u8>((value >> i & 1) != 0 ? byte | mask : byte & ~mask);
    }
}

// Offsets in bits, from struct mlx5_ifc_*_qp_in_bits, mlx5_ifc_qpc_bits and mlx5_ifc_ads_bits.
constexpr unsigned qpc = 0xc0;
constexpr unsigned path = qpc + 0xc0;

TEST(Mlx5Prm, DecodesTheAddressOfInit2Rtr) {
    Command command = {};
    set_bits(command, qpc + 0x40, 3, 5);          // mtu
    set_bits(command, qpc + 0xa8, 24, 0xabcdef);  // remote_qpn
    set_bits(command, qpc + 0x4a3, 5, 12);        // min_rnr_nak
    set_bits(command, qpc + 0x4a8, 24, 0x123456); // next_rcv_psn
    set_bits(command, path + 0x30, 16, 0x1234);   // rlid
    set_bits(command, path + 0x48, 8, 3);         // src_addr_index
    set_bits(command, path + 0x54, 4, 7);         // stat_rate
    set_bits(command, path + 0x58, 8, 64);        // hop_limit
    set_bits(command, path + 0x64, 8, 0x6a);      // tclass
    set_bits(command, path + 0x6c, 20, 0x54321);  // flow_label
    for (unsigned i = 0; i < 16; ++i)
        set_bits(command, path + 0x80 + 8 * i, 8, 0xf0 + i); // rgid_rip
    set_bits(command, path + 0x110, 16, 0xc123);             // udp_sport
    set_bits(command, path + 0x124, 4, 9);                   // sl
    set_bits(command, path + 0x130, 16, 0x0102);             // rmac_47_32
    set_bits(command, path + 0x140, 32, 0x03040506);         // rmac_31_0

    cw_qp_event event = {};
    cw_mlx5_fill_event(&event, CW_MLX5_INIT2RTR_QP, command.data());
    EXPECT_EQ(event.path_mtu, 5);
    EXPECT_EQ(event.dest_qpn, 0xabcdefu);
    EXPECT_EQ(event.min_rnr_timer, 12);
    EXPECT_EQ(event.rq_psn, 0x123456u);
    EXPECT_EQ(event.dlid, 0x1234u);
    EXPECT_EQ(event.sgid_index, 3);
    EXPECT_EQ(event.static_rate, 7);
    EXPECT_EQ(event.hop_limit, 64);
    EXPECT_EQ(event.traffic_class, 0x6a);
    EXPECT_EQ(event.flow_label, 0x54321u);
    for (unsigned i = 0; i < 16; ++i)
        EXPECT_EQ(event.dgid[i], 0xf0 + i);
    EXPECT_EQ(event.udp_sport, 0xc123);
    EXPECT_EQ(event.service_level, 9);
    const __u8 mac[] = {1, 2, 3, 4, 5, 6};
    EXPECT_EQ(std::memcmp(event.dmac, mac, sizeof(mac)), 0);
    EXPECT_EQ(event.flags, CW_QP_PATH_MTU | CW_QP_DEST | CW_QP_PSN_RQ | CW_QP_ADDRESS | CW_QP_GRH |
                               CW_QP_UDP_SPORT);
}

TEST(Mlx5Prm, DecodesRtr2Rts) {
    Command command = {};
    set_bits(command, qpc + 0x38d, 3, 6);         // retry_count
    set_bits(command, qpc + 0x390, 3, 5);         // rnr_retry
    set_bits(command, qpc + 0x3c8, 24, 0x654321); // next_send_psn
    set_bits(command, path + 0x40, 5, 18);        // ack_timeout
    cw_qp_event event = {};
    cw_mlx5_fill_event(&event, CW_MLX5_RTR2RTS_QP, command.data());
    EXPECT_EQ(event.retry_count, 6);
    EXPECT_EQ(event.rnr_retry, 5);
    EXPECT_EQ(event.sq_psn, 0x654321u);
    EXPECT_EQ(event.timeout, 18);
    EXPECT_EQ(event.flags, static_cast<__u32>(CW_QP_PSN_SQ)) << "no address in this one";
}

TEST(Mlx5Prm, DecodesRst2Init) {
    Command command = {};
    set_bits(command, qpc + 0x28, 24, 0x77);  // pd
    set_bits(command, path + 0x10, 16, 0x99); // pkey_index
    set_bits(command, path + 0x128, 8, 2);    // vhca_port_num
    set_bits(command, qpc + 0x540, 32, 0xdeadbeef);
    set_bits(command, qpc + 8, 8, 3); // st: XRC
    cw_qp_event event = {};
    cw_mlx5_fill_event(&event, CW_MLX5_RST2INIT_QP, command.data());
    EXPECT_EQ(event.pdn, 0x77u);
    EXPECT_EQ(event.pkey_index, 0x99);
    EXPECT_EQ(event.port, 2);
    EXPECT_EQ(event.qkey, 0xdeadbeefu);
    EXPECT_EQ(cw_mlx5_qp_type(command.data() + CW_MLX5_QPC_AT), 9);
}

TEST(Mlx5Prm, KnowsItsCommands) {
    EXPECT_TRUE(cw_mlx5_is_qp_command(0x500));
    EXPECT_TRUE(cw_mlx5_is_qp_command(0x50a));
    EXPECT_FALSE(cw_mlx5_is_qp_command(0x4ff));
    EXPECT_FALSE(cw_mlx5_is_qp_command(0x50b)) << "QUERY_QP";
    EXPECT_EQ(cw_mlx5_state_after(0x503), 2);
    EXPECT_EQ(cw_mlx5_state_after(0x50a), 0);
    EXPECT_EQ(cw_mlx5_state_after(0x501), 0xff);
}

} // namespace
