// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "collwire/node_records.h"
#include "collwire/record_kinds.h"
#include "userspace/sources/verbs_paths.h"

namespace collwire::sources {
namespace {

using Gid = std::array<std::uint8_t, 16>;

Gid gid(std::uint8_t subnet, std::uint8_t last) {
    return {0xfe, 0x80, 0, 0, 0, 0, 0, subnet, 0, 0, 0, 0, 0, 0, 0, last};
}

cw_gid entry(const Gid &value, std::uint32_t index, std::uint32_t type) {
    cw_gid gid{};
    gid.port = 1;
    gid.gid_index = index;
    gid.type = type;
    std::ranges::copy(value, gid.gid);
    return gid;
}

inventory::RdmaDevice device(std::uint32_t index, std::uint32_t layer, std::vector<cw_gid> gids) {
    inventory::RdmaDevice made;
    made.record.dev_index = index;
    made.indexed = true;
    inventory::RdmaPort port;
    port.record.dev_index = index;
    port.record.port = 1;
    port.record.link_layer = layer;
    port.record.active_mtu_bytes = 1024;
    port.gids = std::move(gids);
    made.ports.push_back(std::move(port));
    return made;
}

cw_qp_event existing(std::uint32_t dev_index, std::uint32_t qpn = 17) {
    cw_qp_event event{};
    event.header = {sizeof(event), CW_KIND_QP_EXISTING, 0, 1};
    event.key = {dev_index, qpn, 5};
    event.tgid = 7;
    event.qp_type = 2;
    event.old_state = event.new_state = 3;
    event.dest_qpn = 99;
    event.flags = CW_QP_PREEXISTING | CW_QP_FROM_VERBS | CW_QP_FROM_NETLINK | CW_QP_DEST;
    return event;
}

source::QueuePairPath ethernet() {
    source::QueuePairPath path;
    path.tgid = 7;
    path.qpn = 17;
    path.is_ethernet = true;
    path.remote_gid = gid(0, 2);
    path.mtu = 5;
    path.local_gid = gid(0, 1);
    path.local_gid_index = 3;
    return path;
}

class VerbsPathsTest : public testing::Test {
protected:
    void add(const cw_qp_event &event) {
        known_.take(event);
        paths_.add(event);
    }
    auto take(const source::QueuePairPath &path) { return paths_.take(path, known_, devices_); }

    std::vector<inventory::RdmaDevice> devices_{
        device(1, CW_LINK_ETHERNET,
               {entry(gid(0, 1), 2, CW_GID_ROCE_V1), entry(gid(0, 1), 3, CW_GID_ROCE_V2)}),
        device(2, CW_LINK_ETHERNET, {entry(gid(0, 8), 3, CW_GID_ROCE_V2)}),
        device(3, CW_LINK_INFINIBAND, {entry(gid(1, 1), 0, CW_GID_IB)})};
    KnownQps known_;
    VerbsPaths paths_;
};

TEST_F(VerbsPathsTest, GiveAQueuePairItsAddressOnce) {
    add(existing(1));
    EXPECT_TRUE(paths_.are_lacking(7));
    EXPECT_FALSE(paths_.are_lacking(6));
    EXPECT_FALSE(paths_.are_lacking(8));
    const auto event = take(ethernet());
    ASSERT_TRUE(event);
    EXPECT_FALSE(paths_.are_lacking(7));
    EXPECT_EQ(event->header.kind, CW_KIND_QP_EXISTING);
    EXPECT_EQ(event->key.dev_index, 1U);
    EXPECT_EQ(event->dest_qpn, 99U);
    EXPECT_EQ(event->flags, existing(1).flags | CW_QP_ADDRESS | CW_QP_GRH | CW_QP_SGID |
                                CW_QP_PATH_MTU | CW_QP_FROM_NCCL);
    EXPECT_TRUE(std::ranges::equal(event->dgid, gid(0, 2)));
    EXPECT_TRUE(std::ranges::equal(event->sgid, gid(0, 1)));
    EXPECT_EQ(event->gid_type, CW_GID_ROCE_V2);
    EXPECT_EQ(event->sgid_index, 3U);
    EXPECT_EQ(event->port, 1U);
    EXPECT_EQ(event->path_mtu, 3U); // 1024: the port has less than the other end
    EXPECT_FALSE(take(ethernet()));
}

TEST_F(VerbsPathsTest, TheLocalGidChoosesAmongDevices) {
    add(existing(1));
    add(existing(2));
    auto path = ethernet();
    path.local_gid = {};
    EXPECT_FALSE(take(path)); // either
    path = ethernet();
    path.local_gid = gid(0, 8);
    const auto event = take(path);
    ASSERT_TRUE(event);
    EXPECT_EQ(event->key.dev_index, 2U);
    EXPECT_TRUE(take(ethernet())); // the other one
}

TEST_F(VerbsPathsTest, OfTwoPortsTheQueuePairOrTheGidNamesOne) {
    devices_[0].ports.push_back(devices_[0].ports[0]);
    devices_[0].ports[1].record.port = 2;
    add(existing(1));
    EXPECT_FALSE(take(ethernet()));
    devices_[0].ports[0].gids.clear();
    const auto event = take(ethernet());
    ASSERT_TRUE(event);
    EXPECT_EQ(event->port, 2U);
}

TEST_F(VerbsPathsTest, WithoutAnIndexOneTypeHasToBeLeft) {
    add(existing(1));
    auto path = ethernet();
    path.local_gid_index = -1;
    const auto event = take(path);
    ASSERT_TRUE(event);
    EXPECT_EQ(event->flags & CW_QP_SGID, 0U); // RoCE v1 and v2 have it
    EXPECT_NE(event->flags & CW_QP_ADDRESS, 0U);
}

TEST_F(VerbsPathsTest, OnInfiniBandASubnetIsRoutedByLid) {
    add(existing(3));
    auto path = ethernet();
    path.is_ethernet = false;
    path.local_gid = gid(1, 1);
    path.local_gid_index = 0;
    path.remote_lid = 40;
    path.remote_gid = gid(2, 2);
    EXPECT_FALSE(take(path)); // another subnet
    path.remote_gid = gid(1, 2);
    const auto event = take(path);
    ASSERT_TRUE(event);
    EXPECT_EQ(event->dlid, 40U);
    EXPECT_EQ(event->flags & CW_QP_GRH, 0U);
    EXPECT_TRUE(std::ranges::all_of(event->dgid, [](std::uint8_t byte) { return byte == 0; }));
}

TEST_F(VerbsPathsTest, OthersStayAsTheyAre) {
    add(existing(1));
    auto other = ethernet();
    other.qpn = 18;
    EXPECT_FALSE(take(other));
    other = ethernet();
    other.tgid = 8;
    EXPECT_FALSE(take(other));
    auto destroyed = existing(1);
    destroyed.header.kind = CW_KIND_QP_DESTROY;
    known_.take(destroyed);
    EXPECT_FALSE(take(ethernet()));
    // Not connected when it was listed: its address comes from a call.
    auto unconnected = existing(1);
    unconnected.flags &= ~std::uint32_t{CW_QP_DEST};
    add(unconnected);
    EXPECT_FALSE(take(ethernet()));
}

TEST_F(VerbsPathsTest, ALaterCallReplacesTheAddress) {
    add(existing(1));
    known_.take(*take(ethernet()));
    auto again = existing(1);
    again.header.kind = CW_KIND_QP_STATE;
    again.flags = CW_QP_FROM_VERBS | CW_QP_ADDRESS | CW_QP_GRH;
    again.traffic_class = 12;
    known_.take(again);
    const cw_qp_event &now = known_.all().begin()->second;
    EXPECT_EQ(now.flags & CW_QP_FROM_NCCL, 0U);
    EXPECT_EQ(now.traffic_class, 12U);
}

} // namespace
} // namespace collwire::sources
