// SPDX-License-Identifier: Apache-2.0
// Other ends of NCCL's queue pairs, read from memory that is laid out as NCCL 2.28's.
#include "userspace/nccl/memory/queue_pair_paths.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include <unistd.h>

namespace collwire::nccl::test {
namespace {

using Gid = std::array<std::uint8_t, 16>;

struct DevInfo {
    std::uint32_t lid = 0;
    std::uint8_t ib_port = 1;
    std::uint32_t mtu = 0;
    std::uint8_t link_layer = 0;
    alignas(8) Gid gid{};
    std::uint64_t rest[3]{};
};
struct GidInfo {
    std::uint64_t link_layer = 0;
    Gid local_gid{};
    std::int32_t local_gid_index = 0;
};
struct CommDev {
    std::uint64_t before[5]{};
    GidInfo gid_info;
    std::uint64_t after = 0;
};
struct RecvCommDev {
    CommDev base;
    std::uint64_t flush[4]{};
};
struct Qp {
    std::uint64_t qp = 0;
    std::int32_t device = 0, remote_device = 0;
};
struct Base {
    std::uint64_t before[3]{};
    std::array<Qp, 16> qps{};
    std::int32_t n_remote = 0;
    std::array<DevInfo, 4> remote{};
};
struct SendComm {
    Base base;
    std::array<CommDev, 4> devs{};
};
struct RecvComm {
    Base base;
    std::array<RecvCommDev, 4> devs{};
};

Gid gid(std::uint8_t last) {
    return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last};
}

class QueuePairPaths : public testing::Test {
protected:
    void SetUp() override {
        const auto field = [this](const char *name, std::size_t value) {
            layout_.offsets.emplace(name, FieldOffset{value, 8, 0, "test"});
        };
        field("ncclIbNetCommBase.qps", offsetof(Base, qps));
        field("ncclIbNetCommBase.nRemDevs", offsetof(Base, n_remote));
        field("ncclIbNetCommBase.remDevs", offsetof(Base, remote));
        field("ncclIbQp", sizeof(Qp));
        field("ncclIbQp.remDevIdx", offsetof(Qp, remote_device));
        field("ncclIbDevInfo", sizeof(DevInfo));
        field("ncclIbDevInfo.lid", offsetof(DevInfo, lid));
        field("ncclIbDevInfo.mtu", offsetof(DevInfo, mtu));
        field("ncclIbDevInfo.link_layer", offsetof(DevInfo, link_layer));
        field("ncclIbDevInfo.gid", offsetof(DevInfo, gid));
        field("ncclIbSendComm.devs", offsetof(SendComm, devs));
        field("ncclIbSendCommDev", sizeof(CommDev));
        field("ncclIbRecvComm.devs", offsetof(RecvComm, devs));
        field("ncclIbRecvCommDev", sizeof(RecvCommDev));
        field("ncclIbNetCommDevBase.gidInfo.localGid",
              offsetof(CommDev, gid_info) + offsetof(GidInfo, local_gid));
        field("ncclIbNetCommDevBase.gidInfo.localGidIndex",
              offsetof(CommDev, gid_info) + offsetof(GidInfo, local_gid_index));
        send_.base.n_remote = 1;
        send_.base.remote[0].mtu = 5;
        send_.base.remote[0].link_layer = 2;
        send_.base.remote[0].gid = gid(2);
        send_.devs[0].gid_info.local_gid = gid(1);
        send_.devs[0].gid_info.local_gid_index = 3;
        connection_.tgid = static_cast<std::uint32_t>(getpid());
        connection_.transport = CW_NCCL_TRANSPORT_IB;
        connection_.flags = CW_NCCL_CONNECTION_SEND;
        connection_.net_comm = reinterpret_cast<std::uint64_t>(&send_);
        connection_.n_endpoints = connection_.n = 2;
        connection_.endpoints[0] = {0x1000, 17, 0, CW_NCCL_ROLE_DATA, 0};
        connection_.endpoints[1] = {0x2000, 18, 1, CW_NCCL_ROLE_DATA, 0};
    }

    [[nodiscard]] auto read() {
        return read_queue_pair_paths(process::ProcessView{getpid()}, layout_, connection_);
    }

    LibraryLayout layout_;
    SendComm send_;
    RecvComm recv_;
    cw_nccl_connection connection_{};
};

TEST_F(QueuePairPaths, OfASenderHaveBothGidsAndTheMtu) {
    send_.devs[1].gid_info.local_gid = gid(9);
    const auto paths = read();
    ASSERT_EQ(paths.size(), 2U);
    EXPECT_EQ(paths[0].tgid, connection_.tgid);
    EXPECT_EQ(paths[0].qpn, 17U);
    EXPECT_EQ(paths[0].address, 0x1000U);
    EXPECT_TRUE(paths[0].is_ethernet);
    EXPECT_EQ(paths[0].remote_gid, gid(2));
    EXPECT_EQ(paths[0].mtu, 5U);
    EXPECT_EQ(paths[0].local_gid, gid(1));
    EXPECT_EQ(paths[0].local_gid_index, 3);
    EXPECT_EQ(paths[1].qpn, 18U);
    EXPECT_EQ(paths[1].local_gid, gid(9)); // of its own device
}

TEST_F(QueuePairPaths, OfAReceiverHaveItsDevices) {
    recv_.base = send_.base;
    recv_.devs[0].base.gid_info.local_gid = gid(4);
    connection_.flags = 0;
    connection_.net_comm = reinterpret_cast<std::uint64_t>(&recv_);
    connection_.endpoints[1].role = CW_NCCL_ROLE_FLUSH;
    const auto paths = read();
    ASSERT_EQ(paths.size(), 1U); // the flush queue pair has no other end
    EXPECT_EQ(paths[0].remote_gid, gid(2));
    EXPECT_EQ(paths[0].local_gid, gid(4));
}

TEST_F(QueuePairPaths, OfSeveralRemoteDevicesTheQueuePairNamesItsOwn) {
    send_.base.n_remote = 2;
    send_.base.remote[1] = send_.base.remote[0];
    send_.base.remote[1].gid = gid(3);
    send_.base.qps[9].remote_device = 1;
    connection_.first = 8;
    const auto paths = read();
    ASSERT_EQ(paths.size(), 2U);
    EXPECT_EQ(paths[0].remote_gid, gid(2));
    EXPECT_EQ(paths[1].remote_gid, gid(3));
    send_.base.qps[9].remote_device = 2; // there are only two
    EXPECT_EQ(read().size(), 1U);
    recv_.base = send_.base;
    connection_.flags = 0;
    connection_.net_comm = reinterpret_cast<std::uint64_t>(&recv_);
    EXPECT_TRUE(read().empty());
}

TEST_F(QueuePairPaths, OnInfiniBandHaveTheLid) {
    send_.base.remote[0].link_layer = 1;
    EXPECT_TRUE(read().empty()); // not connected yet
    send_.base.remote[0].lid = 77;
    const auto paths = read();
    ASSERT_EQ(paths.size(), 2U);
    EXPECT_FALSE(paths[0].is_ethernet);
    EXPECT_EQ(paths[0].remote_lid, 77U);
}

TEST_F(QueuePairPaths, AreNotMadeUp) {
    send_.base.remote[0].mtu = 6;
    EXPECT_TRUE(read().empty());
    send_.base.remote[0].mtu = 0;
    EXPECT_TRUE(read().empty());
    send_.base.remote[0].mtu = 3;
    send_.base.remote[0].gid = {};
    EXPECT_TRUE(read().empty());
    send_.base.remote[0].gid = gid(2);
    send_.base.n_remote = 9;
    EXPECT_TRUE(read().empty());
    send_.base.n_remote = 1;
    ASSERT_EQ(read().size(), 2U);
    connection_.transport = CW_NCCL_TRANSPORT_PLUGIN;
    EXPECT_TRUE(read().empty());
    connection_.transport = CW_NCCL_TRANSPORT_IB;
    connection_.net_comm = 0x10; // nothing is mapped there
    EXPECT_TRUE(read().empty());
    connection_.net_comm = reinterpret_cast<std::uint64_t>(&send_);
    layout_.offsets.erase("ncclIbDevInfo.lid"); // another version
    EXPECT_TRUE(read().empty());
}

TEST_F(QueuePairPaths, OfOlderVersionsHaveTheGidInTwoHalves) {
    layout_.offsets.emplace("ncclIbDevInfo.spn",
                            layout_.offsets.extract("ncclIbDevInfo.gid").mapped());
    const auto paths = read();
    ASSERT_EQ(paths.size(), 2U);
    EXPECT_EQ(paths[0].remote_gid, gid(2));
}

} // namespace
} // namespace collwire::nccl::test
