// SPDX-License-Identifier: Apache-2.0
// Communicators and connections out of the memory of this process, laid out as no NCCL has them.
#include <array>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <optional>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_connection_records.h"
#include "tests/support/tcp_pair.h"
#include "userspace/nccl/layout/bpf_layout.h"
#include "userspace/nccl/memory/comm_copies.h"
#include "userspace/nccl/memory/live_comms.h"

namespace collwire::nccl::test {
namespace {

constexpr std::uint64_t BIAS = 0x1000;
constexpr std::uint64_t MAGIC = 0x0280028002800280;

struct Qp {
    std::uint64_t context;
    std::uint32_t number;
};
struct IbQp {
    const Qp *qp;
    std::int32_t device;
};
struct RecvDevice {
    std::int32_t other;
    IbQp flush;
};
struct IbComm {
    std::int32_t n_qps;
    std::array<IbQp, 10> qps;
    std::int32_t n_devices;
    std::array<RecvDevice, 2> devices; // of a receiver
};
struct Socket {
    std::uint64_t other;
    std::int32_t fd;
};
struct SocketComm {
    Socket control;
    std::int32_t n_sockets;
    std::array<Socket, 2> sockets;
};
struct Resources {
    const void *net_comm;
    std::int32_t rank, remote_rank, channel, conn_index, net_dev;
};
struct Connection {
    std::int32_t send, transport;
    const Resources *resources;
};
struct Connector {
    std::int32_t connected, same_process;
    const Connection *connection;
};
struct Peer {
    std::array<Connector, 2> send, recv;
};
struct Channel {
    const Peer *const *peers;
};
struct ProxyState {
    std::uint64_t net;
};
struct Comm {
    std::uint64_t magic = MAGIC;
    std::array<Channel, 64> channels{};
    std::uint64_t hash = 0xabcdef;
    std::int32_t rank = 1, n_ranks = 3, state = 0;
    const ProxyState *proxy_state = nullptr;
    const char *name = "tp0";
};

#define OFFSET(name, type, member)                                                                 \
    {                                                                                              \
        name, FieldOffset {                                                                        \
            offsetof(type, member), 8, 0, "test"                                                   \
        }                                                                                          \
    }
#define SIZE(name, type)                                                                           \
    {                                                                                              \
        name, FieldOffset {                                                                        \
            sizeof(type), sizeof(type), 0, "test"                                                  \
        }                                                                                          \
    }

class LiveComms : public testing::Test {
protected:
    void SetUp() override {
        layout_.version = "2.28.9";
        layout_.offsets = {OFFSET("ncclComm.startMagic", Comm, magic),
                           OFFSET("ncclComm.commHash", Comm, hash),
                           OFFSET("ncclComm.rank", Comm, rank),
                           OFFSET("ncclComm.nRanks", Comm, n_ranks),
                           OFFSET("ncclComm.initState", Comm, state),
                           OFFSET("ncclComm.proxyState", Comm, proxy_state),
                           OFFSET("ncclComm.config.commName", Comm, name),
                           OFFSET("ncclComm.channels", Comm, channels),
                           OFFSET("ncclChannel.peers", Channel, peers),
                           SIZE("ncclChannel", Channel),
                           OFFSET("ncclChannelPeer.send", Peer, send),
                           OFFSET("ncclChannelPeer.recv", Peer, recv),
                           SIZE("ncclConnector", Connector),
                           OFFSET("ncclConnector.connected", Connector, connected),
                           OFFSET("ncclConnector.proxyConn.sameProcess", Connector, same_process),
                           OFFSET("ncclConnector.proxyConn.connection", Connector, connection),
                           OFFSET("ncclProxyState.ncclNet", ProxyState, net),
                           OFFSET("ncclProxyConnection.send", Connection, send),
                           OFFSET("ncclProxyConnection.transport", Connection, transport),
                           OFFSET("ncclProxyConnection.transportResources", Connection, resources),
                           OFFSET("sendNetResources.netSendComm", Resources, net_comm),
                           OFFSET("sendNetResources.tpRank", Resources, rank),
                           OFFSET("sendNetResources.tpRemoteRank", Resources, remote_rank),
                           OFFSET("sendNetResources.channelId", Resources, channel),
                           OFFSET("sendNetResources.connIndex", Resources, conn_index),
                           OFFSET("sendNetResources.netDev", Resources, net_dev),
                           OFFSET("recvNetResources.netRecvComm", Resources, net_comm),
                           OFFSET("ncclIbNetCommBase.nqps", IbComm, n_qps),
                           OFFSET("ncclIbNetCommBase.vProps.ndevs", IbComm, n_devices),
                           OFFSET("ncclIbRecvComm.devs", IbComm, devices),
                           SIZE("ncclIbRecvCommDev", RecvDevice),
                           OFFSET("ncclIbRecvCommDev.gpuFlush.qp", RecvDevice, flush),
                           OFFSET("ncclIbNetCommBase.qps", IbComm, qps),
                           SIZE("ncclIbQp", IbQp),
                           OFFSET("ncclIbQp.qp", IbQp, qp),
                           OFFSET("ncclIbQp.devIndex", IbQp, device),
                           OFFSET("ibv_qp.qp_num", Qp, number),
                           OFFSET("ncclNetSocketComm.ctrlSock", SocketComm, control),
                           OFFSET("ncclNetSocketComm.nSocks", SocketComm, n_sockets),
                           OFFSET("ncclNetSocketComm.socks", SocketComm, sockets),
                           SIZE("ncclSocket", Socket),
                           OFFSET("ncclSocket.fd", Socket, fd)};
        // Addresses in the file: less the bias.
        layout_.data = {{"ncclComms", reinterpret_cast<std::uint64_t>(&table_) - BIAS},
                        {"nNcclComms", reinterpret_cast<std::uint64_t>(&n_comms_) - BIAS},
                        {"ncclNetIb", 0x500},
                        {"ncclNetSocket", 0x600}};
        proxy_state_.net = 0x500 + BIAS;
        comm_.proxy_state = &proxy_state_;
        for (std::size_t i = 0; i < qps_.size(); ++i) {
            qps_[i].number = static_cast<std::uint32_t>(100 + i);
            ib_comm_.qps[i] = {&qps_[i], static_cast<std::int32_t>(i % 2)};
        }
        peer_.send[0] = {1, 1, &connection_};
        peers_[2] = &peer_;
        comm_.channels[3].peers = peers_.data();
    }

    [[nodiscard]] std::vector<LiveComm> read() const {
        const auto bpf_layout = bpf_layout_of(layout_, 1);
        EXPECT_TRUE(bpf_layout.ok());
        return read_comms(process::ProcessView{getpid()}, layout_, *bpf_layout, BIAS).comms;
    }

    LibraryLayout layout_;
    std::array<Qp, 10> qps_{};
    IbComm ib_comm_{10, {}, 2, {}};
    Resources resources_{&ib_comm_, 1, 2, 3, 0, 0};
    Connection connection_{1, 2, &resources_};
    Peer peer_{};
    std::array<const Peer *, 3> peers_{};
    ProxyState proxy_state_{};
    Comm comm_{};
    std::array<const Comm *, 3> entries_{nullptr, &comm_, nullptr};
    const Comm *const *table_ = entries_.data();
    std::int32_t n_comms_ = 3;
};

TEST_F(LiveComms, CommunicatorAndItsQueuePairs) {
    const auto comms = read();
    ASSERT_EQ(comms.size(), 1u); // entries may be empty
    const cw_nccl_comm &comm = comms[0].comm;
    EXPECT_EQ(comm.comm, reinterpret_cast<std::uint64_t>(&comm_));
    EXPECT_EQ(comm.comm_hash, 0xabcdefu);
    EXPECT_EQ(comm.rank, 1);
    EXPECT_EQ(comm.n_ranks, 3);
    EXPECT_STREQ(comm.name, "tp0");
    EXPECT_EQ(comm.flags, CW_NCCL_COMM_OUTSIDE);
    // Ten queue pairs are two records.
    ASSERT_EQ(comms[0].connections.size(), 2u);
    const cw_nccl_connection &first = comms[0].connections[0], &second = comms[0].connections[1];
    EXPECT_EQ(first.transport, static_cast<unsigned>(CW_NCCL_TRANSPORT_IB));
    EXPECT_EQ(first.flags, CW_NCCL_CONNECTION_SEND | CW_NCCL_CONNECTION_OUTSIDE);
    EXPECT_EQ(first.peer, 2);
    EXPECT_EQ(first.channel, 3);
    EXPECT_EQ(first.n_endpoints, 10u);
    EXPECT_EQ(first.n, 8u);
    EXPECT_EQ(first.endpoints[7].number, 107u);
    EXPECT_EQ(first.endpoints[7].device, 1u);
    EXPECT_EQ(first.endpoints[0].role, CW_NCCL_ROLE_DATA);
    EXPECT_EQ(second.first, 8u);
    EXPECT_EQ(second.n, 2u);
    EXPECT_EQ(second.endpoints[1].number, 109u);
}

TEST_F(LiveComms, FlushQueuePairsOfAReceiver) {
    ib_comm_.n_qps = 2;
    ib_comm_.devices = {{{0, {&qps_[7], 0}}, {0, {&qps_[8], 0}}}};
    ASSERT_EQ(read().at(0).connections.size(), 1u);
    EXPECT_EQ(read()[0].connections[0].n_endpoints, 2u) << "a sender has none";
    connection_.send = 0;
    const auto comms = read();
    const cw_nccl_connection &receiver = comms.at(0).connections.at(0);
    ASSERT_EQ(receiver.n_endpoints, 4u);
    ASSERT_EQ(receiver.n, 4u);
    EXPECT_EQ(receiver.endpoints[1].role, CW_NCCL_ROLE_CLEAR_TO_SEND);
    EXPECT_EQ(receiver.endpoints[2].role, CW_NCCL_ROLE_FLUSH);
    EXPECT_EQ(receiver.endpoints[2].number, 107u);
    EXPECT_EQ(receiver.endpoints[3].number, 108u);
    EXPECT_EQ(receiver.endpoints[3].device, 1u);
    EXPECT_EQ(receiver.flags & CW_NCCL_CONNECTION_FAULT, 0u);
    for (const std::int32_t absurd : {-1, 0, 9, 1 << 30}) {
        ib_comm_.n_devices = absurd;
        EXPECT_EQ(read().at(0).connections.at(0).n_endpoints, 2u);
    }
    ib_comm_.n_devices = 2;
    ib_comm_.devices = {}; // no GPUDirect
    EXPECT_EQ(read().at(0).connections.at(0).n_endpoints, 2u);
    EXPECT_EQ(read()[0].connections[0].flags & CW_NCCL_CONNECTION_FAULT, 0u);
}

TEST_F(LiveComms, OnlyReadyCommunicatorsAreRead) {
    comm_.state = 7; // ncclInProgress
    EXPECT_TRUE(read().empty());
    comm_.state = 0;
    comm_.magic = 1;
    EXPECT_TRUE(read().empty());
    comm_.magic = MAGIC;
    peer_.send[0].same_process = 0; // the address is one of another process
    EXPECT_TRUE(read().at(0).connections.empty());
    peer_.send[0] = {0, 1, &connection_};
    EXPECT_TRUE(read().at(0).connections.empty());
    peer_.send[0].connected = 1;
    connection_.transport = 1; // SHM
    EXPECT_TRUE(read().at(0).connections.empty());
}

TEST_F(LiveComms, UnreadablePeersAreSkipped) {
    const auto *nowhere = reinterpret_cast<const Peer *>(0x10);
    peers_ = {nowhere, nowhere, &peer_};
    EXPECT_EQ(read().at(0).connections.size(), 2U);
}

// Of 4,096 ranks, each of which a channel has a struct for.
TEST_F(LiveComms, LargeCommunicators) {
    const Peer alone{};
    std::vector<const Peer *> peers(4096, &alone);
    peers[17] = &peer_;
    Comm large = comm_;
    large.n_ranks = 4096;
    for (Channel &channel : large.channels)
        channel.peers = peers.data();
    const std::vector<const Comm *> all(8, &large);
    table_ = all.data();
    n_comms_ = 8;
    const auto bpf_layout = bpf_layout_of(layout_, 1);
    const auto comms = read_comms(process::ProcessView{getpid()}, layout_, *bpf_layout, BIAS);
    EXPECT_FALSE(comms.is_cut);
    ASSERT_EQ(comms.comms.size(), 8U);
    EXPECT_EQ(comms.comms[7].connections.size(), 128U) << "two records for each channel";
}

TEST_F(LiveComms, MemoryThatCannotBeReadIsBounded) {
    // In the first page. NOLINTNEXTLINE(performance-no-int-to-ptr)
    const std::vector<const Peer *> peers(4096, reinterpret_cast<const Peer *>(std::uintptr_t{16}));
    Comm false_one = comm_;
    false_one.n_ranks = 4096;
    for (Channel &channel : false_one.channels)
        channel.peers = peers.data();
    const Comm *only = &false_one;
    table_ = &only;
    n_comms_ = 1;
    const auto bpf_layout = bpf_layout_of(layout_, 1);
    const auto comms = read_comms(process::ProcessView{getpid()}, layout_, *bpf_layout, BIAS);
    EXPECT_TRUE(comms.is_cut);
    ASSERT_EQ(comms.comms.size(), 1U);
    EXPECT_TRUE(comms.comms[0].connections.empty());
}

TEST_F(LiveComms, GoneWhileItIsRead) {
    const auto bpf_layout = bpf_layout_of(layout_, 1);
    const cw_nccl_comm comm = read().at(0).comm;
    const auto is_there = [&] {
        return collwire::nccl::is_there(process::ProcessView{getpid()}, layout_, *bpf_layout, BIAS,
                                        comm);
    };
    EXPECT_TRUE(is_there());
    comm_.hash = 1; // another one at its address
    EXPECT_FALSE(is_there());
    comm_.hash = 0xabcdef;
    entries_[1] = nullptr;
    EXPECT_FALSE(is_there());
    entries_[1] = &comm_;
    comm_.magic = 0;
    EXPECT_FALSE(is_there());
}

TEST_F(LiveComms, ForkedProcessHasCopies) {
    const pid_t child = fork();
    if (child == 0)
        for (;;)
            pause();
    ASSERT_GT(child, 0);
    const auto bpf_layout = bpf_layout_of(layout_, 1);
    auto copied = read_comms(process::ProcessView{child}, layout_, *bpf_layout, BIAS).comms;
    kill(child, SIGKILL);
    ASSERT_EQ(copied.size(), 1u) << "a copy looks like what it is a copy of";
    auto own = read();
    own.at(0).comm.tgid = static_cast<std::uint32_t>(getpid());
    copied[0].comm.tgid = static_cast<std::uint32_t>(child);
    CommCopies copies;
    EXPECT_FALSE(copies.is_copy(copied[0].comm));
    copies.add(own[0].comm);
    EXPECT_TRUE(copies.is_copy(copied[0].comm)) << "not waited for: it has its parent still";
    EXPECT_FALSE(copies.is_copy(own[0].comm));
    EXPECT_TRUE(copies.is_descendant(child));
    EXPECT_FALSE(copies.is_descendant(getpid()));
    copied[0].comm.image_id = 2; // another copy of NCCL
    EXPECT_FALSE(copies.is_copy(copied[0].comm));
    copied[0].comm.image_id = own[0].comm.image_id;
    copied[0].comm.rank = 2;
    EXPECT_FALSE(copies.is_copy(copied[0].comm));
    waitpid(child, nullptr, 0);
}

TEST(CommCopies, AreThoseOfAnAncestor) {
    // 1 - 90 - 20 - 30, and 1 - 40
    const ParentOf parent = [](pid_t pid) -> std::optional<pid_t> {
        switch (pid) {
        case 30:
            return 20;
        case 20:
            return 90;
        case 90:
        case 40:
            return 1;
        case 1:
            return 0;
        default:
            return std::nullopt;
        }
    };
    CommCopies copies(parent);
    cw_nccl_comm comm{};
    comm.comm_hash = 7;
    comm.tgid = 90;
    copies.add(comm);
    comm.tgid = 30;
    EXPECT_TRUE(copies.is_copy(comm));
    comm.tgid = 40; // another rank, whose memory happens to lie the same
    EXPECT_FALSE(copies.is_copy(comm));
    comm.tgid = 50; // it has ended
    EXPECT_FALSE(copies.is_copy(comm));
    const std::vector<pid_t> sorted = {1, 40, 90, 20, 30};
    EXPECT_EQ(ancestors_first(std::vector<pid_t>{1, 20, 30, 40, 90}, parent), sorted);
    const ParentOf endless = [](pid_t pid) { return pid == 1 ? 2 : 1; };
    EXPECT_EQ(ancestors_first(std::vector<pid_t>{1, 2}, endless).size(), 2u);
    EXPECT_FALSE(CommCopies(endless).is_copy(comm));
}

TEST_F(LiveComms, SocketsByTheirInodes) {
    const collwire::test::Fd first(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const collwire::test::Fd second(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const collwire::test::Fd file(open("/dev/null", O_RDONLY | O_CLOEXEC));
    const SocketComm comm{{0, first.get()}, 2, {{{0, file.get()}, {0, second.get()}}}};
    resources_.net_comm = &comm;
    proxy_state_.net = 0x600 + BIAS;
    const auto comms = read();
    ASSERT_EQ(comms.at(0).connections.size(), 1u);
    const cw_nccl_connection &connection = comms[0].connections[0];
    EXPECT_EQ(connection.transport, static_cast<unsigned>(CW_NCCL_TRANSPORT_SOCKET));
    ASSERT_EQ(connection.n, 3u);
    EXPECT_EQ(connection.endpoints[0].number, first.number());
    struct stat status {};
    ASSERT_EQ(fstat(first.get(), &status), 0);
    EXPECT_EQ(connection.socket_inodes[0], status.st_ino);
    EXPECT_EQ(connection.socket_inodes[1], 0u) << "no socket";
    ASSERT_EQ(fstat(second.get(), &status), 0);
    EXPECT_EQ(connection.socket_inodes[2], status.st_ino);
}

// The most that NCCL allows itself.
TEST_F(LiveComms, ManyQueuePairsAndSockets) {
    struct {
        IbComm head{128, {}, 2, {}};
        std::array<IbQp, 128> qps{};
    } many;
    many.qps.fill({&qps_[3], 1});
    layout_.offsets["ncclIbNetCommBase.qps"].value = sizeof(IbComm);
    resources_.net_comm = &many;
    auto comms = read();
    ASSERT_EQ(comms.at(0).connections.size(), 16u);
    EXPECT_EQ(comms[0].connections[15].n_endpoints, 128u);
    EXPECT_EQ(comms[0].connections[15].endpoints[7].number, 103u);
    EXPECT_EQ(comms[0].connections[15].flags & CW_NCCL_CONNECTION_FAULT, 0u);
    struct {
        SocketComm head{{0, 0}, 64, {}};
        std::array<Socket, 64> sockets{};
    } sockets;
    layout_.offsets["ncclNetSocketComm.socks"].value = sizeof(SocketComm);
    resources_.net_comm = &sockets;
    proxy_state_.net = 0x600 + BIAS;
    comms = read();
    ASSERT_EQ(comms.at(0).connections.size(), 9u);
    EXPECT_EQ(comms[0].connections[8].n_endpoints, 65u) << "one controls";
    EXPECT_EQ(comms[0].connections[8].flags & CW_NCCL_CONNECTION_FAULT, 0u);
    sockets.head.n_sockets = -1;
    EXPECT_EQ(read().at(0).connections.at(0).n_endpoints, 0u);
    EXPECT_NE(read()[0].connections[0].flags & CW_NCCL_CONNECTION_FAULT, 0u);
}

TEST_F(LiveComms, NetworkOfAPlugin) {
    proxy_state_.net = 0x7777;
    const auto comms = read();
    ASSERT_EQ(comms.at(0).connections.size(), 1u);
    EXPECT_EQ(comms[0].connections[0].transport, static_cast<unsigned>(CW_NCCL_TRANSPORT_PLUGIN));
    EXPECT_EQ(comms[0].connections[0].n_endpoints, 0u);
}

TEST_F(LiveComms, ReadsOfBadMemoryAreBounded) {
    ib_comm_.n_qps = 1 << 30;
    ASSERT_EQ(read().at(0).connections.size(), 1u);
    EXPECT_NE(read()[0].connections[0].flags & CW_NCCL_CONNECTION_FAULT, 0u);
    ib_comm_.n_qps = 2;
    ib_comm_.qps[1].qp = reinterpret_cast<const Qp *>(8);
    ASSERT_EQ(read().at(0).connections.size(), 1u);
    EXPECT_EQ(read()[0].connections[0].n, 1u);
    EXPECT_NE(read()[0].connections[0].flags & CW_NCCL_CONNECTION_FAULT, 0u);
    comm_.name = reinterpret_cast<const char *>(8);
    EXPECT_STREQ(read().at(0).comm.name, "");
    comm_.n_ranks = -1;
    EXPECT_TRUE(read().empty());
    n_comms_ = 1 << 30; // ends where memory ends
    EXPECT_LE(read().size(), 4096u);
    table_ = nullptr;
    EXPECT_TRUE(read().empty());
}

// Its network stays unknown until it is read again.
TEST_F(LiveComms, ANetworkThatCannotBeReadIsNoPlugin) {
    const auto bpf_layout = bpf_layout_of(layout_, 1);
    ASSERT_TRUE(bpf_layout.ok());
    constexpr std::uint64_t NOWHERE = 8;
    const auto records = read_connection(process::ProcessView{getpid()}, layout_, *bpf_layout, BIAS,
                                         NOWHERE, reinterpret_cast<std::uint64_t>(&connection_));
    ASSERT_EQ(records.size(), 1U);
    EXPECT_EQ(records[0].transport, static_cast<unsigned>(CW_NCCL_TRANSPORT_UNKNOWN));
    EXPECT_NE(records[0].flags & CW_NCCL_CONNECTION_FAULT, 0U);
    EXPECT_EQ(records[0].peer, 2);
}

// Of another rank's proxy: its address is known from an operation.
TEST_F(LiveComms, OneConnection) {
    const auto bpf_layout = bpf_layout_of(layout_, 1);
    ASSERT_TRUE(bpf_layout.ok());
    const auto read_at = [&](const void *address) {
        return read_connection(process::ProcessView{getpid()}, layout_, *bpf_layout, BIAS,
                               reinterpret_cast<std::uint64_t>(&proxy_state_),
                               reinterpret_cast<std::uint64_t>(address));
    };
    const auto records = read_at(&connection_);
    ASSERT_EQ(records.size(), 2u);
    EXPECT_EQ(records[0].rank, 1);
    EXPECT_EQ(records[0].comm, 0u);
    EXPECT_EQ(records[0].transport, static_cast<unsigned>(CW_NCCL_TRANSPORT_IB));
    EXPECT_EQ(records[1].endpoints[1].number, 109u);
    EXPECT_TRUE(read_at(nullptr).empty());
    EXPECT_TRUE(read_at(reinterpret_cast<const void *>(8)).empty());
    resources_.net_comm = nullptr; // not connected yet
    EXPECT_TRUE(read_at(&connection_).empty());
}

TEST_F(LiveComms, BiasOfAMapping) {
    ProbedFunction probe;
    probe.address = 0x97090;
    probe.file_offset = 0x96090;
    layout_.probes.push_back(probe);
    process::Mapping mapping{0x7f0000010000, 0x7f0000200000, 0x10000, 5, true, "libnccl.so.2"};
    EXPECT_EQ(load_bias(layout_, mapping), 0x7f0000010000u + 0x86090 - 0x97090);
    mapping.executable = false;
    EXPECT_FALSE(load_bias(layout_, mapping).has_value());
    mapping.executable = true;
    mapping.file_offset = 0x97000; // the code is in another one
    EXPECT_FALSE(load_bias(layout_, mapping).has_value());
}

} // namespace
} // namespace collwire::nccl::test
