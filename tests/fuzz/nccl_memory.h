// SPDX-License-Identifier: Apache-2.0
// The memory of a process with NCCL in it, as fuzz_nccl_memory reads it: laid out as no NCCL has
// it, small enough for a fuzzer to change something that matters.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "userspace/nccl/plan.h"

namespace collwire::nccl::memory {

// An input is this many bytes that say how it is meant, and the memory from BASE on.
inline constexpr std::size_t HEAD_BYTES = 8;
inline constexpr std::size_t CONNECTION_BYTE = 6; // two bytes: where a connection is looked for
inline constexpr std::uint64_t BASE = 0x10000;
inline constexpr std::uint64_t BIAS = 0x1000;
inline constexpr std::uint64_t MAGIC = 0x0280028002800280;

// Bits of the first byte.
enum : unsigned {
    REPEATS = 1,      // the memory goes on behind its end, over and over: every count is readable
    WITHOUT_QPS = 2,  // the layout of a build that does not say where queue pairs are
    COUNTS = 4,       // a version that keeps numbers of its own
    ONE_FIELD_IS = 8, // the second byte says which field, the next four where it lies
};

struct Qp {
    std::uint64_t context;
    std::uint32_t number;
};
struct IbQp {
    std::uint64_t qp;
    std::int32_t device;
};
struct RecvDevice {
    IbQp flush;
};
struct IbComm {
    std::int32_t n_qps, n_devices;
    std::array<IbQp, 3> qps;
    std::array<RecvDevice, 2> devices; // of a receiver
};
struct Socket {
    std::int32_t fd;
};
struct SocketComm {
    Socket control;
    std::array<Socket, 3> sockets;
    std::int32_t n_sockets;
};
struct Resources {
    std::uint64_t net_comm;
    std::int32_t rank, remote_rank, channel, conn_index, net_dev, use_gdr;
};
struct Connection {
    std::int32_t send, transport, shared;
    std::uint64_t resources;
};
struct Connector {
    std::int32_t connected, same_process;
    std::uint64_t connection;
};
struct Peer {
    std::array<Connector, 2> send, receive;
};
struct Channel {
    std::uint64_t peers, user_ranks;
    std::int32_t prev, next, index, up;
    std::array<std::int32_t, 3> down;
};
struct ProxyState {
    std::uint64_t net;
};
struct SharedResources {
    std::uint64_t owner, coll_op_count;
};
struct Comm {
    std::uint64_t magic, hash;
    std::int32_t rank, n_ranks, state, n_channels;
    std::uint64_t proxy_state, name, shared;
    std::array<std::uint64_t, 5> seq_number;
    std::array<Channel, 2> channels;
};
struct Roots {
    std::uint64_t comms;
    std::int32_t n_comms;
};
inline constexpr std::uint64_t NET_IB = 0x500;
inline constexpr std::uint64_t NET_SOCKET = 0x600;

inline Plan plan() {
    Plan plan;
    const auto field = [&plan](const char *name, std::size_t offset) {
        plan.offsets[name].value = offset;
    };
    field("ncclComm.startMagic", offsetof(Comm, magic));
    field("ncclComm.commHash", offsetof(Comm, hash));
    field("ncclComm.rank", offsetof(Comm, rank));
    field("ncclComm.nRanks", offsetof(Comm, n_ranks));
    field("ncclComm.initState", offsetof(Comm, state));
    field("ncclComm.nChannels", offsetof(Comm, n_channels));
    field("ncclComm.proxyState", offsetof(Comm, proxy_state));
    field("ncclComm.config.commName", offsetof(Comm, name));
    field("ncclComm.sharedRes", offsetof(Comm, shared));
    field("ncclComm.seqNumber", offsetof(Comm, seq_number));
    field("ncclComm.channels", offsetof(Comm, channels));
    field("ncclSharedResources.owner", offsetof(SharedResources, owner));
    field("ncclSharedResources.collOpCount", offsetof(SharedResources, coll_op_count));
    field("ncclChannel", sizeof(Channel));
    field("ncclChannel.peers", offsetof(Channel, peers));
    field("ncclChannel.ring.prev", offsetof(Channel, prev));
    field("ncclChannel.ring.next", offsetof(Channel, next));
    field("ncclChannel.ring.index", offsetof(Channel, index));
    field("ncclChannel.ring.userRanks", offsetof(Channel, user_ranks));
    field("ncclChannel.tree.up", offsetof(Channel, up));
    field("ncclChannel.tree.down", offsetof(Channel, down));
    field("ncclChannelPeer.send", offsetof(Peer, send));
    field("ncclChannelPeer.recv", offsetof(Peer, receive));
    field("ncclConnector", sizeof(Connector));
    field("ncclConnector.connected", offsetof(Connector, connected));
    field("ncclConnector.proxyConn.sameProcess", offsetof(Connector, same_process));
    field("ncclConnector.proxyConn.connection", offsetof(Connector, connection));
    field("ncclProxyState.ncclNet", offsetof(ProxyState, net));
    field("ncclProxyConnection.send", offsetof(Connection, send));
    field("ncclProxyConnection.transport", offsetof(Connection, transport));
    field("ncclProxyConnection.shared", offsetof(Connection, shared));
    field("ncclProxyConnection.transportResources", offsetof(Connection, resources));
    for (const char *side : {"send", "recv"}) {
        const std::string resources = std::string{side} + "NetResources.";
        const char *net_comm = side[0] == 's' ? "netSendComm" : "netRecvComm";
        field((resources + net_comm).c_str(), offsetof(Resources, net_comm));
        field((resources + "tpRank").c_str(), offsetof(Resources, rank));
        field((resources + "tpRemoteRank").c_str(), offsetof(Resources, remote_rank));
        field((resources + "channelId").c_str(), offsetof(Resources, channel));
        field((resources + "connIndex").c_str(), offsetof(Resources, conn_index));
        field((resources + "netDev").c_str(), offsetof(Resources, net_dev));
        field((resources + "useGdr").c_str(), offsetof(Resources, use_gdr));
    }
    field("ncclIbNetCommBase.nqps", offsetof(IbComm, n_qps));
    field("ncclIbNetCommBase.qps", offsetof(IbComm, qps));
    field("ncclIbNetCommBase.vProps.ndevs", offsetof(IbComm, n_devices));
    field("ncclIbRecvComm.devs", offsetof(IbComm, devices));
    field("ncclIbRecvCommDev", sizeof(RecvDevice));
    field("ncclIbRecvCommDev.gpuFlush.qp", offsetof(RecvDevice, flush));
    field("ncclIbQp", sizeof(IbQp));
    field("ncclIbQp.qp", offsetof(IbQp, qp));
    field("ncclIbQp.devIndex", offsetof(IbQp, device));
    field("ibv_qp.qp_num", offsetof(Qp, number));
    field("ncclNetSocketComm.ctrlSock", offsetof(SocketComm, control));
    field("ncclNetSocketComm.socks", offsetof(SocketComm, sockets));
    field("ncclNetSocketComm.nSocks", offsetof(SocketComm, n_sockets));
    field("ncclSocket", sizeof(Socket));
    field("ncclSocket.fd", offsetof(Socket, fd));
    plan.data = {{"ncclComms", BASE - BIAS + offsetof(Roots, comms)},
                 {"nNcclComms", BASE - BIAS + offsetof(Roots, n_comms)},
                 {"ncclNetIb", NET_IB},
                 {"ncclNetSocket", NET_SOCKET}};
    return plan;
}

} // namespace collwire::nccl::memory
