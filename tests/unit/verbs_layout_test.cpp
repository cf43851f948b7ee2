// SPDX-License-Identifier: Apache-2.0
// The layouts that the probes on libibverbs read, against the public header of the library.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include "collwire/verbs.h"
#include "collwire/verbs_qp.h"

namespace {

// Sizes of pointers are compared, too. NOLINTBEGIN(bugprone-sizeof-expression)
#define SAME_PLACE(ours, our_field, theirs, their_field)                                           \
    static_assert(offsetof(ours, our_field) == offsetof(theirs, their_field) &&                    \
                      sizeof(ours::our_field) == sizeof(theirs::their_field),                      \
                  #their_field)

SAME_PLACE(cw_ibv_qp, context, ibv_qp, context);
SAME_PLACE(cw_ibv_qp, pd, ibv_qp, pd);
SAME_PLACE(cw_ibv_qp, handle, ibv_qp, handle);
SAME_PLACE(cw_ibv_qp, qp_num, ibv_qp, qp_num);
SAME_PLACE(cw_ibv_qp, state, ibv_qp, state);
SAME_PLACE(cw_ibv_qp, qp_type, ibv_qp, qp_type);
static_assert(offsetof(ibv_context, device) == CW_IBV_CONTEXT_DEVICE);
static_assert(offsetof(ibv_device, name) == CW_IBV_DEVICE_NAME);
static_assert(sizeof(ibv_device::name) == CW_NAME_BYTES);

SAME_PLACE(cw_ibv_qp_attr, qp_state, ibv_qp_attr, qp_state);
SAME_PLACE(cw_ibv_qp_attr, path_mtu, ibv_qp_attr, path_mtu);
SAME_PLACE(cw_ibv_qp_attr, qkey, ibv_qp_attr, qkey);
SAME_PLACE(cw_ibv_qp_attr, rq_psn, ibv_qp_attr, rq_psn);
SAME_PLACE(cw_ibv_qp_attr, sq_psn, ibv_qp_attr, sq_psn);
SAME_PLACE(cw_ibv_qp_attr, dest_qp_num, ibv_qp_attr, dest_qp_num);
SAME_PLACE(cw_ibv_qp_attr, ah_attr, ibv_qp_attr, ah_attr);
SAME_PLACE(cw_ibv_qp_attr, alt_ah_attr, ibv_qp_attr, alt_ah_attr);
SAME_PLACE(cw_ibv_qp_attr, pkey_index, ibv_qp_attr, pkey_index);
SAME_PLACE(cw_ibv_qp_attr, max_rd_atomic, ibv_qp_attr, max_rd_atomic);
SAME_PLACE(cw_ibv_qp_attr, min_rnr_timer, ibv_qp_attr, min_rnr_timer);
SAME_PLACE(cw_ibv_qp_attr, port_num, ibv_qp_attr, port_num);
SAME_PLACE(cw_ibv_qp_attr, timeout, ibv_qp_attr, timeout);
SAME_PLACE(cw_ibv_qp_attr, retry_cnt, ibv_qp_attr, retry_cnt);
SAME_PLACE(cw_ibv_qp_attr, rnr_retry, ibv_qp_attr, rnr_retry);
SAME_PLACE(cw_ibv_qp_attr, alt_timeout, ibv_qp_attr, alt_timeout);
static_assert(sizeof(cw_ibv_qp_attr) <= sizeof(ibv_qp_attr));

SAME_PLACE(cw_ibv_ah_attr, dlid, ibv_ah_attr, dlid);
SAME_PLACE(cw_ibv_ah_attr, sl, ibv_ah_attr, sl);
SAME_PLACE(cw_ibv_ah_attr, static_rate, ibv_ah_attr, static_rate);
SAME_PLACE(cw_ibv_ah_attr, is_global, ibv_ah_attr, is_global);
SAME_PLACE(cw_ibv_ah_attr, port_num, ibv_ah_attr, port_num);
static_assert(offsetof(ibv_ah_attr, grh) == 0);
SAME_PLACE(cw_ibv_ah_attr, dgid, ibv_global_route, dgid);
SAME_PLACE(cw_ibv_ah_attr, flow_label, ibv_global_route, flow_label);
SAME_PLACE(cw_ibv_ah_attr, sgid_index, ibv_global_route, sgid_index);
SAME_PLACE(cw_ibv_ah_attr, hop_limit, ibv_global_route, hop_limit);
SAME_PLACE(cw_ibv_ah_attr, traffic_class, ibv_global_route, traffic_class);

static_assert(offsetof(cw_ibv_async_event, element) == offsetof(ibv_async_event, element));
SAME_PLACE(cw_ibv_async_event, event_type, ibv_async_event, event_type);
// NOLINTEND(bugprone-sizeof-expression)

static_assert(int{CW_IBV_QP_STATE} == int{IBV_QP_STATE});
static_assert(int{CW_IBV_QP_PKEY_INDEX} == int{IBV_QP_PKEY_INDEX});
static_assert(int{CW_IBV_QP_PORT} == int{IBV_QP_PORT});
static_assert(int{CW_IBV_QP_QKEY} == int{IBV_QP_QKEY});
static_assert(int{CW_IBV_QP_AV} == int{IBV_QP_AV});
static_assert(int{CW_IBV_QP_PATH_MTU} == int{IBV_QP_PATH_MTU});
static_assert(int{CW_IBV_QP_TIMEOUT} == int{IBV_QP_TIMEOUT});
static_assert(int{CW_IBV_QP_RETRY_CNT} == int{IBV_QP_RETRY_CNT});
static_assert(int{CW_IBV_QP_RNR_RETRY} == int{IBV_QP_RNR_RETRY});
static_assert(int{CW_IBV_QP_RQ_PSN} == int{IBV_QP_RQ_PSN});
static_assert(int{CW_IBV_QP_MAX_QP_RD_ATOMIC} == int{IBV_QP_MAX_QP_RD_ATOMIC});
static_assert(int{CW_IBV_QP_MIN_RNR_TIMER} == int{IBV_QP_MIN_RNR_TIMER});
static_assert(int{CW_IBV_QP_SQ_PSN} == int{IBV_QP_SQ_PSN});
static_assert(int{CW_IBV_QP_DEST_QPN} == int{IBV_QP_DEST_QPN});
static_assert(int{CW_IBV_EVENT_QP_FATAL} == int{IBV_EVENT_QP_FATAL});
static_assert(int{CW_IBV_EVENT_QP_ACCESS_ERR} == int{IBV_EVENT_QP_ACCESS_ERR});
static_assert(int{CW_IBV_EVENT_PATH_MIG_ERR} == int{IBV_EVENT_PATH_MIG_ERR});
static_assert(int{CW_IBV_EVENT_QP_LAST_WQE_REACHED} == int{IBV_EVENT_QP_LAST_WQE_REACHED});

// What a program gives to ibv_modify_qp, byte for byte as the probe reads it.
cw_ibv_qp_attr as_read(const ibv_qp_attr &given) {
    cw_ibv_qp_attr read = {};
    std::memcpy(&read, &given, sizeof(read));
    return read;
}

TEST(VerbsAttributes, AreThoseOfTheMask) {
    ibv_qp_attr given = {};
    given.qp_state = IBV_QPS_RTR;
    given.path_mtu = IBV_MTU_4096;
    given.dest_qp_num = 0x01abcdef;
    given.rq_psn = 0xff123456;
    given.sq_psn = 0x654321;
    given.qkey = 0x11111111;
    given.pkey_index = 3;
    given.timeout = 14;
    given.retry_cnt = 7;
    given.rnr_retry = 6;
    given.min_rnr_timer = 12;
    given.max_rd_atomic = 16;
    given.port_num = 2;
    const cw_ibv_qp_attr read = as_read(given);

    cw_qp_event event = {};
    event.new_state = 1;
    cw_fill_from_ibv_attr(&event, &read,
                          IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                              IBV_QP_MIN_RNR_TIMER);
    EXPECT_EQ(event.new_state, 2);
    EXPECT_EQ(event.path_mtu, 5);
    EXPECT_EQ(event.dest_qpn, 0xabcdefU);
    EXPECT_EQ(event.rq_psn, 0x123456U);
    EXPECT_EQ(event.min_rnr_timer, 12);
    EXPECT_EQ(event.flags, std::uint32_t{CW_QP_PATH_MTU | CW_QP_DEST | CW_QP_PSN_RQ});
    EXPECT_EQ(event.sq_psn, 0U);
    EXPECT_EQ(event.qkey, 0U);
    EXPECT_EQ(event.port, 0);
    EXPECT_EQ(event.timeout, 0);

    cw_fill_from_ibv_attr(&event, &read,
                          IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                              IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_QKEY | IBV_QP_PKEY_INDEX |
                              IBV_QP_PORT);
    EXPECT_EQ(event.timeout, 14);
    EXPECT_EQ(event.retry_count, 7);
    EXPECT_EQ(event.rnr_retry, 6);
    EXPECT_EQ(event.max_rd_atomic, 16);
    EXPECT_EQ(event.sq_psn, 0x654321U);
    EXPECT_EQ(event.qkey, 0x11111111U);
    EXPECT_EQ(event.pkey_index, 3);
    EXPECT_EQ(event.port, 2);
    EXPECT_NE(event.flags & CW_QP_PSN_SQ, 0U);
}

ibv_ah_attr global_address() {
    ibv_ah_attr address = {};
    address.is_global = 1;
    for (unsigned i = 0; i < 16; ++i)
        address.grh.dgid.raw[i] = static_cast<std::uint8_t>(0xf0 + i);
    address.grh.flow_label = 0x54321;
    address.grh.sgid_index = 3;
    address.grh.hop_limit = 255;
    address.grh.traffic_class = 0x6a;
    address.dlid = 77;
    address.sl = 5;
    address.static_rate = 2;
    address.port_num = 1;
    return address;
}

cw_qp_event with_address(const ibv_ah_attr &given, bool ethernet) {
    ibv_qp_attr all = {};
    all.ah_attr = given;
    const cw_ibv_qp_attr read = as_read(all);
    cw_qp_event event = {};
    cw_fill_from_ibv_ah(&event, &read.ah_attr, ethernet ? 1 : 0);
    return event;
}

TEST(VerbsAddress, HasNoLidOnEthernet) {
    const cw_qp_event event = with_address(global_address(), true);
    EXPECT_EQ(event.flags, std::uint32_t{CW_QP_ADDRESS | CW_QP_GRH});
    for (unsigned i = 0; i < 16; ++i)
        EXPECT_EQ(event.dgid[i], 0xf0 + i);
    EXPECT_EQ(event.flow_label, 0x54321U);
    EXPECT_EQ(event.sgid_index, 3);
    EXPECT_EQ(event.hop_limit, 255);
    EXPECT_EQ(event.traffic_class, 0x6a);
    EXPECT_EQ(event.service_level, 5);
    EXPECT_EQ(event.static_rate, 2);
    EXPECT_EQ(event.port, 1);
    EXPECT_EQ(event.dlid, 0U);
}

TEST(VerbsAddress, IsALidOnInfiniband) {
    ibv_ah_attr address = global_address();
    address.is_global = 0;
    const cw_qp_event event = with_address(address, false);
    EXPECT_EQ(event.flags, std::uint32_t{CW_QP_ADDRESS});
    EXPECT_EQ(event.dlid, 77U);
    EXPECT_EQ(event.dgid[0], 0);
    EXPECT_EQ(event.flow_label, 0U);
}

TEST(VerbsSourcePort, IsComputedForRoceOfTheseDriversAlone) {
    cw_qp_event event = with_address(global_address(), true);
    event.key.qpn = 17;
    event.dest_qpn = 17;
    event.flow_label = 0;
    event.flags |= CW_QP_DEST;
    cw_verbs_gid gid = {};
    gid.gid[15] = 9;
    gid.type = CW_GID_ROCE_V2;
    cw_fill_from_gid(&event, &gid);
    EXPECT_EQ(event.sgid[15], 9);
    cw_fill_computed_sport(&event, 0);
    EXPECT_EQ(event.flags & CW_QP_UDP_SPORT, 0U);
    cw_fill_computed_sport(&event, CW_VERBS_COMPUTED_SPORT);
    EXPECT_NE(event.flags & CW_QP_UDP_SPORT, 0U);
    EXPECT_EQ(event.udp_sport, 0xc000 | 289); // as in UdpSport.FollowsTheKernelsRule
    cw_qp_event of_infiniband = event;
    of_infiniband.flags &= ~std::uint32_t{CW_QP_UDP_SPORT};
    of_infiniband.gid_type = CW_GID_IB;
    cw_fill_computed_sport(&of_infiniband, CW_VERBS_COMPUTED_SPORT);
    EXPECT_EQ(of_infiniband.flags & CW_QP_UDP_SPORT, 0U);
}

TEST(VerbsResult, IsNegativeWhateverSignTheFunctionReturns) {
    EXPECT_EQ(cw_verbs_result(0), 0);
    EXPECT_EQ(cw_verbs_result(22), -22);
    EXPECT_EQ(cw_verbs_result(-22), -22);
}

TEST(VerbsEvents, OfQueuePairsAndErrors) {
    for (const int type : {1, 2, 3, 4, 5, 6, 7, 16})
        EXPECT_TRUE(cw_ibv_event_is_of_qp(static_cast<__u32>(type))) << type;
    for (const int type : {0, 8, 9, 10, 15, 17, 18})
        EXPECT_FALSE(cw_ibv_event_is_of_qp(static_cast<__u32>(type))) << type;
    EXPECT_TRUE(cw_ibv_event_is_error(IBV_EVENT_QP_REQ_ERR));
    EXPECT_FALSE(cw_ibv_event_is_error(IBV_EVENT_COMM_EST));
}

} // namespace
