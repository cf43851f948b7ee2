// SPDX-License-Identifier: Apache-2.0
// Connections inside a node, read from memory that is laid out as NCCL's.
#include "userspace/nccl/memory/local_connections.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include <unistd.h>

#include "collwire/record_kinds.h"

namespace collwire::nccl::test {
namespace {

struct ProxyConnection {
    std::int32_t send = 0, transport = 0;
};
struct Connector {
    std::int32_t connected = 0, same_process = 0;
    ProxyConnection *connection = nullptr;
};
struct Peer {
    std::array<Connector, 2> send{}, recv{};
};
struct Channel {
    Peer **peers = nullptr;
};
struct Comm {
    std::array<Channel, 64> channels{};
    std::int32_t *local_to_rank = nullptr;
};

// Rank 5 of 8, with rank 4 on its node.
class LocalConnections : public testing::Test {
protected:
    void SetUp() override {
        const auto field = [this](const char *name, std::size_t value) {
            layout_.offsets.emplace(name, FieldOffset{value, 8, 0, "test"});
        };
        field("ncclComm.channels", offsetof(Comm, channels));
        field("ncclComm.localRankToRank", offsetof(Comm, local_to_rank));
        field("ncclChannel", sizeof(Channel));
        field("ncclChannel.peers", offsetof(Channel, peers));
        field("ncclChannelPeer.send", offsetof(Peer, send));
        field("ncclChannelPeer.recv", offsetof(Peer, recv));
        field("ncclConnector", sizeof(Connector));
        field("ncclConnector.connected", offsetof(Connector, connected));
        field("ncclConnector.proxyConn.sameProcess", offsetof(Connector, same_process));
        field("ncclConnector.proxyConn.connection", offsetof(Connector, connection));
        field("ncclProxyConnection.transport", offsetof(ProxyConnection, transport));
        comm_.local_to_rank = ranks_.data();
        for (std::size_t i = 0; i < tables_.size(); ++i) {
            tables_[i][4] = &peers_[i];
            comm_.channels[i].peers = tables_[i].data();
        }
        record_.comm = reinterpret_cast<std::uint64_t>(&comm_);
        record_.tgid = static_cast<std::uint32_t>(getpid());
        record_.rank = 5;
        record_.n_ranks = 8;
        record_.local_ranks = 2;
    }

    [[nodiscard]] auto read() {
        return read_local_connections(process::ProcessView{getpid()}, layout_, record_);
    }
    void connect(Connector &connector, ProxyConnection &through) {
        connector = {.connected = 1, .same_process = 1, .connection = &through};
    }

    LibraryLayout layout_;
    std::array<std::int32_t, 2> ranks_{4, 5};
    std::array<std::array<Peer *, 8>, 3> tables_{};
    std::array<Peer, 3> peers_{};
    std::array<ProxyConnection, 4> through_{{{1, 0}, {1, 1}, {1, 2}, {1, 3}}};
    Comm comm_;
    cw_nccl_comm record_{};
};

TEST_F(LocalConnections, HaveTheTransportOfEachChannel) {
    connect(peers_[0].send[0], through_[0]);
    connect(peers_[1].send[0], through_[1]);
    connect(peers_[2].recv[1], through_[1]);
    connect(peers_[2].send[1], through_[2]);
    connect(peers_[2].recv[0], through_[3]); // CollNet: none of these
    const auto locals = read();
    ASSERT_EQ(locals.size(), 1U);
    EXPECT_EQ(locals[0].header.kind, CW_KIND_NCCL_LOCAL);
    EXPECT_EQ(locals[0].header.length_bytes, sizeof(cw_nccl_local));
    EXPECT_EQ(locals[0].peer, 4);
    EXPECT_EQ(locals[0].p2p_send[0], 1U);
    EXPECT_EQ(locals[0].shm_send[0], 2U);
    EXPECT_EQ(locals[0].shm_recv[1], 4U);
    EXPECT_EQ(locals[0].net_send[1], 4U);
    EXPECT_EQ(locals[0].p2p_recv[0] | locals[0].shm_recv[0] | locals[0].net_recv[0], 0U);
}

TEST_F(LocalConnections, ARankThatIsNotConnectedYetHasARecord) {
    peers_[0].send[0] = {.connected = 0, .same_process = 1, .connection = through_.data()};
    peers_[1].send[0] = {.connected = 1, .same_process = 0, .connection = through_.data()};
    const auto locals = read();
    ASSERT_EQ(locals.size(), 1U);
    EXPECT_EQ(locals[0].p2p_send[0], 0U);
}

TEST_F(LocalConnections, BadMemoryIsLeftOut) {
    connect(peers_[0].send[0], through_[0]);
    connect(peers_[1].send[0], through_[0]);
    peers_[0].send[0].connection = reinterpret_cast<ProxyConnection *>(8);
    comm_.channels[2].peers = reinterpret_cast<Peer **>(16);
    ASSERT_EQ(read().size(), 1U);
    EXPECT_EQ(read()[0].p2p_send[0], 2U);
    ranks_[0] = 8; // no such rank
    EXPECT_TRUE(read().empty());
    comm_.local_to_rank = nullptr;
    EXPECT_TRUE(read().empty());
    record_.local_ranks = 1 << 30;
    EXPECT_TRUE(read().empty());
}

TEST_F(LocalConnections, AreReadOnlyWhereTheLayoutHasThem) {
    layout_.offsets.erase("ncclChannel.peers");
    EXPECT_TRUE(read().empty());
}

} // namespace
} // namespace collwire::nccl::test
