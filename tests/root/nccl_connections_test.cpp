// SPDX-License-Identifier: Apache-2.0
// The programs on a launch: what they read of its connections.
#include <array>
#include <cstdint>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_connection_records.h"
#include "collwire/nccl_launch_records.h"
#include "collwire/record_kinds.h"
#include "tests/root/nccl_programs.h"
#include "tests/support/tcp_pair.h"

namespace collwire::test {
namespace {

class NcclConnections : public NcclPrograms {};

std::uint64_t inode_of(int fd) {
    struct stat status {};
    return fstat(fd, &status) == 0 ? status.st_ino : 0;
}

TEST_P(NcclConnections, FlushQueuePairs) {
    launch();
    ASSERT_EQ(emitted<cw_nccl_comm>(CW_KIND_NCCL_COMM).size(), 1U);
    const auto all = connections();
    ASSERT_EQ(all.size(), 4U) << "nine queue pairs are two records";
    EXPECT_EQ(all[0].connection, reinterpret_cast<std::uint64_t>(&receive_));
    EXPECT_EQ(all[0].transport, static_cast<unsigned>(CW_NCCL_TRANSPORT_IB));
    EXPECT_EQ(all[0].n_endpoints, 11U);
    EXPECT_EQ(all[0].n, 8U);
    EXPECT_EQ(all[0].endpoints[7].role, CW_NCCL_ROLE_CLEAR_TO_SEND);
    EXPECT_EQ(all[0].endpoints[7].device, 1U);
    EXPECT_EQ(all[1].first, 8U);
    ASSERT_EQ(all[1].n, 3U);
    EXPECT_EQ(all[1].endpoints[0].role, CW_NCCL_ROLE_CLEAR_TO_SEND);
    for (const unsigned i : {1U, 2U}) {
        EXPECT_EQ(all[1].endpoints[i].role, CW_NCCL_ROLE_FLUSH);
        EXPECT_EQ(all[1].endpoints[i].number, 108U + i);
        EXPECT_EQ(all[1].endpoints[i].device, i - 1);
        EXPECT_EQ(all[1].endpoints[i].address, reinterpret_cast<std::uint64_t>(&qps_[8 + i]));
    }
    EXPECT_EQ(all[2].flags & CW_NCCL_CONNECTION_SEND, CW_NCCL_CONNECTION_SEND);
    EXPECT_EQ(all[2].n_endpoints, 9U) << "a sender has none";
    for (const cw_nccl_connection &each : all)
        EXPECT_EQ(each.flags & CW_NCCL_CONNECTION_FAULT, 0U);
}

TEST_P(NcclConnections, NoGpuDirect) {
    ib_comm_.devices = {};
    launch();
    ASSERT_EQ(connections().size(), 4U);
    EXPECT_EQ(connections()[0].n_endpoints, 9U);
    EXPECT_EQ(connections()[0].flags & CW_NCCL_CONNECTION_FAULT, 0U);
}

TEST_P(NcclConnections, AbsurdNumberOfDevices) {
    ib_comm_.n_devices = 1 << 30;
    launch();
    ASSERT_EQ(connections().size(), 4U);
    EXPECT_EQ(connections()[0].n_endpoints, 9U);
}

// The file of a descriptor now, before its number is another socket's.
TEST_P(NcclConnections, SocketsByTheirInodes) {
    std::array<test::Fd, 8> sockets;
    for (test::Fd &each : sockets)
        each = test::Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const test::Fd file(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    SocketComm comm;
    comm.n_sockets = 9;
    comm.control.fd = sockets[0].get();
    for (std::size_t i = 1; i < sockets.size(); ++i)
        comm.sockets[i - 1].fd = sockets[i].get();
    comm.sockets[7].fd = file.get();
    comm.sockets[8].fd = 1 << 30;
    resources_.net_comm = &comm;
    proxy_state_.net = &net_socket_;
    std::array<std::uint64_t, 8> inodes{};
    for (std::size_t i = 0; i < sockets.size(); ++i)
        inodes[i] = inode_of(sockets[i].get());
    launch();
    const auto all = connections();
    ASSERT_EQ(all.size(), 4U);
    EXPECT_EQ(all[0].transport, static_cast<unsigned>(CW_NCCL_TRANSPORT_SOCKET));
    EXPECT_EQ(all[0].n_endpoints, 10U);
    ASSERT_EQ(all[0].n, 8U);
    for (std::size_t i = 0; i < sockets.size(); ++i) {
        EXPECT_EQ(all[0].endpoints[i].number, sockets[i].number());
        EXPECT_NE(inodes[i], 0U);
        EXPECT_EQ(all[0].socket_inodes[i], inodes[i]);
    }
    ASSERT_EQ(all[1].n, 2U);
    EXPECT_EQ(all[1].endpoints[0].number, file.number());
    EXPECT_EQ(all[1].socket_inodes[0], 0U) << "no socket";
    EXPECT_EQ(all[1].socket_inodes[1], 0U) << "not open";
    EXPECT_EQ(all[0].flags & CW_NCCL_CONNECTION_FAULT, 0U);
}

// Its resources are laid out in another way, so nothing of them is read; but it is on the network.
TEST_P(NcclConnections, CollNetIsNotLocal) {
    send_.transport = 3;
    receive_.transport = 1;
    launch();
    ASSERT_EQ(connections().size(), 2U);
    const cw_nccl_connection shared_memory = connections()[0], collnet = connections()[1];
    EXPECT_EQ(shared_memory.transport, static_cast<unsigned>(CW_NCCL_TRANSPORT_LOCAL));
    EXPECT_EQ(collnet.connection, reinterpret_cast<std::uint64_t>(&send_));
    EXPECT_EQ(collnet.transport, static_cast<unsigned>(CW_NCCL_TRANSPORT_COLLNET));
    EXPECT_EQ(collnet.flags, static_cast<unsigned>(CW_NCCL_CONNECTION_SEND));
    EXPECT_EQ(collnet.n_endpoints, 0U);
    for (const std::int32_t number :
         {collnet.rank, collnet.peer, collnet.channel, collnet.conn_index, collnet.net_dev})
        EXPECT_EQ(number, -1);
    launch();
    EXPECT_TRUE(connections().empty());
}

// The most that NCCL allows itself, and more.
TEST_P(NcclConnections, ManyQueuePairs) {
    std::vector<std::byte> memory(sizeof(IbComm) + 128 * sizeof(IbQp));
    auto *many = new (memory.data()) IbComm(ib_comm_);
    many->devices = {};
    layout_.ib_send_qps = layout_.ib_recv_qps = sizeof(IbComm);
    std::vector<IbQp> qps(128, IbQp{&qps_[3], 1});
    std::memcpy(memory.data() + sizeof(IbComm), qps.data(), qps.size() * sizeof(IbQp));
    many->n_qps = 128;
    resources_.net_comm = many;
    launch();
    ASSERT_EQ(connections().size(), 32U) << "of a receiver and a sender";
    EXPECT_EQ(connections()[0].n_endpoints, 128U);
    EXPECT_EQ(connections()[15].first, 120U);
    EXPECT_EQ(connections()[15].n, 8U);
    EXPECT_EQ(connections()[15].endpoints[7].number, 103U);
    for (const cw_nccl_connection &each : connections())
        EXPECT_EQ(each.flags & CW_NCCL_CONNECTION_FAULT, 0U);
}

TEST_P(NcclConnections, AbsurdNumberOfQueuePairs) {
    ib_comm_.n_qps = 129;
    launch();
    ASSERT_EQ(connections().size(), 2U);
    EXPECT_EQ(connections()[0].n_endpoints, 0U);
    EXPECT_EQ(connections()[0].flags & CW_NCCL_CONNECTION_FAULT, CW_NCCL_CONNECTION_FAULT);
}

// A page that is not in memory, as one that is being moved to another node's: the next launch is no
// new one, but its connections are read again. Not for ever.
TEST_P(NcclConnections, AConnectionThatIsReadLater) {
    void *const page =
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(page, MAP_FAILED);
    send_.resources = static_cast<const Resources *>(page); // never touched so far
    launch();
    ASSERT_EQ(connections().size(), 3U);
    EXPECT_EQ(connections()[2].flags & CW_NCCL_CONNECTION_FAULT, CW_NCCL_CONNECTION_FAULT);
    launch();
    ASSERT_EQ(connections().size(), 1U) << "that one only";
    std::memcpy(page, &resources_, sizeof(resources_));
    launch();
    ASSERT_EQ(connections().size(), 2U);
    EXPECT_EQ(connections()[0].connection, reinterpret_cast<std::uint64_t>(&send_));
    EXPECT_EQ(connections()[0].n_endpoints, 9U);
    EXPECT_EQ(connections()[0].flags & CW_NCCL_CONNECTION_FAULT, 0U);
    launch();
    EXPECT_TRUE(connections().empty());
    EXPECT_TRUE(emitted<cw_nccl_shape_ops>(CW_KIND_NCCL_SHAPE_OPS).empty());
    munmap(page, 4096);
}

TEST_P(NcclConnections, AConnectionThatCannotBeRead) {
    send_.resources = nullptr;
    for (int i = 0; i < 4; ++i) {
        launch();
        EXPECT_FALSE(connections().empty());
    }
    launch(); // given up; and so it is known
    EXPECT_TRUE(connections().empty());
    launch();
    EXPECT_TRUE(emitted<cw_nccl_shape_ops>(CW_KIND_NCCL_SHAPE_OPS).empty());
}

INSTANTIATE_TEST_SUITE_P(Walks, NcclConnections,
                         testing::Values("proxy_start", "proxy_start_bounded"),
                         [](const auto &of) { return std::string{of.param}; });

} // namespace
} // namespace collwire::test
