// SPDX-License-Identifier: Apache-2.0
// The memory of a process with NCCL in it, as fuzz_nccl_memory reads it: laid out as no NCCL has
// it, small enough for a fuzzer to change something that matters.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "userspace/nccl/layout/library_layout.h"

namespace collwire::nccl::memory {

// An input is this many bytes that say how it is meant, and the memory from BASE on.
inline constexpr std::size_t HEAD_BYTES = 8;
inline constexpr std::size_t CONNECTION_BYTE = 6; // two bytes: where a connection is looked for
inline constexpr std::uint64_t BASE = 0x10000;
inline constexpr std::uint64_t BIAS = 0x1000;
inline constexpr std::uint64_t MAGIC = 0x0280028002800280;

// Bits of the first byte.
enum : unsigned {
    REPEATS = 1,      // the memory goes on after its end, over and over: every count is readable
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
struct GidInfo {
    std::array<std::uint8_t, 16> gid;
    std::int32_t index;
};
struct RecvDevice {
    IbQp flush;
    GidInfo local;
};
struct RemoteDevice {
    std::uint32_t lid, mtu;
    std::uint8_t link_layer;
    std::array<std::uint8_t, 16> gid;
};
struct IbComm {
    std::int32_t n_qps, n_devices;
    std::array<IbQp, 3> qps;
    std::array<RecvDevice, 2> devices; // of a receiver
    std::int32_t n_remote;
    std::array<RemoteDevice, 2> remote;
};
struct Socket {
    std::int32_t fd;
};
struct SocketComm {
    Socket control;
    std::array<Socket, 3> sockets;
    std::int32_t n_sockets;
};
struct MapMemory {
    std::uint64_t cpu;
};
struct Resources {
    std::uint64_t net_comm;
    std::int32_t rank, remote_rank, channel, conn_index, net_dev, use_gdr;
    std::uint64_t send_mem, recv_mem;
    std::array<MapMemory, 5> mems;
    std::array<std::uint32_t, 3> buffs;
    std::array<std::int32_t, 3> buff_sizes;
};
struct FifoEntry {
    std::int64_t size;
};
struct RecvMem {
    std::uint64_t tail;
    std::array<FifoEntry, 8> fifo;
};
struct SendMem {
    std::uint64_t head;
};
struct Sub {
    std::uint64_t connection;
    std::int32_t channel, nsteps;
    std::uint64_t base, posted, received, transmitted, done;
};
struct Args {
    std::array<Sub, 2> subs;
    std::int32_t n_subs, state, slice_steps;
    std::uint64_t op_count, next, next_peer;
    std::uint8_t dtype, red_op, pattern, coll, protocol, algorithm;
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
    std::int32_t n_heads, head_rank, nvls_up;
    std::array<std::int32_t, 3> nvls_down;
};
struct ProxyState {
    std::uint64_t net, active;
    std::int32_t rank;
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
    std::int32_t nvls_channels, nvls_chunk_bytes;
};
struct Roots {
    std::uint64_t comms;
    std::int32_t n_comms;
};
inline constexpr std::uint64_t NET_IB = 0x500;
inline constexpr std::uint64_t NET_SOCKET = 0x600;

struct Field {
    const char *name;
    std::size_t value;
};
inline constexpr auto FIELDS = std::to_array<Field>({
    {"ncclComm.startMagic", offsetof(Comm, magic)},
    {"ncclComm.commHash", offsetof(Comm, hash)},
    {"ncclComm.rank", offsetof(Comm, rank)},
    {"ncclComm.nRanks", offsetof(Comm, n_ranks)},
    {"ncclComm.initState", offsetof(Comm, state)},
    {"ncclComm.nChannels", offsetof(Comm, n_channels)},
    {"ncclComm.proxyState", offsetof(Comm, proxy_state)},
    {"ncclComm.config.commName", offsetof(Comm, name)},
    {"ncclComm.sharedRes", offsetof(Comm, shared)},
    {"ncclComm.seqNumber", offsetof(Comm, seq_number)},
    {"ncclComm.channels", offsetof(Comm, channels)},
    {"ncclSharedResources.owner", offsetof(SharedResources, owner)},
    {"ncclSharedResources.collOpCount", offsetof(SharedResources, coll_op_count)},
    {"ncclChannel", sizeof(Channel)},
    {"ncclChannel.peers", offsetof(Channel, peers)},
    {"ncclChannel.ring.prev", offsetof(Channel, prev)},
    {"ncclChannel.ring.next", offsetof(Channel, next)},
    {"ncclChannel.ring.index", offsetof(Channel, index)},
    {"ncclChannel.ring.userRanks", offsetof(Channel, user_ranks)},
    {"ncclChannel.tree.up", offsetof(Channel, up)},
    {"ncclChannel.tree.down", offsetof(Channel, down)},
    {"ncclChannel.nvls.nHeads", offsetof(Channel, n_heads)},
    {"ncclChannel.nvls.headRank", offsetof(Channel, head_rank)},
    {"ncclChannel.nvls.treeUp", offsetof(Channel, nvls_up)},
    {"ncclChannel.nvls.treeDown", offsetof(Channel, nvls_down)},
    {"ncclComm.nvlsChannels", offsetof(Comm, nvls_channels)},
    {"ncclComm.nvlsChunkSize", offsetof(Comm, nvls_chunk_bytes)},
    {"ncclChannelPeer.send", offsetof(Peer, send)},
    {"ncclChannelPeer.recv", offsetof(Peer, receive)},
    {"ncclConnector", sizeof(Connector)},
    {"ncclConnector.connected", offsetof(Connector, connected)},
    {"ncclConnector.proxyConn.sameProcess", offsetof(Connector, same_process)},
    {"ncclConnector.proxyConn.connection", offsetof(Connector, connection)},
    {"ncclProxyState.ncclNet", offsetof(ProxyState, net)},
    {"ncclProxyState.progressState", 0},
    {"ncclProxyState.tpRank", offsetof(ProxyState, rank)},
    {"ncclProxyProgressState.active", offsetof(ProxyState, active)},
    {"ncclProxyArgs.subs", offsetof(Args, subs)},
    {"ncclProxyArgs.nsubs", offsetof(Args, n_subs)},
    {"ncclProxyArgs.state", offsetof(Args, state)},
    {"ncclProxyArgs.sliceSteps", offsetof(Args, slice_steps)},
    {"ncclProxyArgs.opCount", offsetof(Args, op_count)},
    {"ncclProxyArgs.next", offsetof(Args, next)},
    {"ncclProxyArgs.nextPeer", offsetof(Args, next_peer)},
    {"ncclProxyArgs.dtype", offsetof(Args, dtype)},
    {"ncclProxyArgs.redOp", offsetof(Args, red_op)},
    {"ncclProxyArgs.pattern", offsetof(Args, pattern)},
    {"ncclProxyArgs.coll", offsetof(Args, coll)},
    {"ncclProxyArgs.protocol", offsetof(Args, protocol)},
    {"ncclProxyArgs.algorithm", offsetof(Args, algorithm)},
    {"ncclProxySubArgs", sizeof(Sub)},
    {"ncclProxySubArgs.connection", offsetof(Sub, connection)},
    {"ncclProxySubArgs.channelId", offsetof(Sub, channel)},
    {"ncclProxySubArgs.nsteps", offsetof(Sub, nsteps)},
    {"ncclProxySubArgs.base", offsetof(Sub, base)},
    {"ncclProxySubArgs.posted", offsetof(Sub, posted)},
    {"ncclProxySubArgs.received", offsetof(Sub, received)},
    {"ncclProxySubArgs.transmitted", offsetof(Sub, transmitted)},
    {"ncclProxySubArgs.done", offsetof(Sub, done)},
    {"sendNetResources.recvMem", offsetof(Resources, recv_mem)},
    {"recvNetResources.sendMem", offsetof(Resources, send_mem)},
    {"sendNetResources.buffSizes", offsetof(Resources, buff_sizes)},
    {"sendNetResources.map.mems", offsetof(Resources, mems)},
    {"sendNetResources.map.offsets.buffs", offsetof(Resources, buffs)},
    {"connectMapMem", sizeof(MapMemory)},
    {"connectMapMem.cpuPtr", offsetof(MapMemory, cpu)},
    {"ncclRecvMem.tail", offsetof(RecvMem, tail)},
    {"ncclRecvMem.connFifo", offsetof(RecvMem, fifo)},
    {"ncclConnFifo", sizeof(FifoEntry)},
    {"ncclConnFifo.size", offsetof(FifoEntry, size)},
    {"ncclSendMem.head", offsetof(SendMem, head)},
    {"ncclProxyConnection.send", offsetof(Connection, send)},
    {"ncclProxyConnection.transport", offsetof(Connection, transport)},
    {"ncclProxyConnection.shared", offsetof(Connection, shared)},
    {"ncclProxyConnection.transportResources", offsetof(Connection, resources)},
    {"ncclIbNetCommBase.nqps", offsetof(IbComm, n_qps)},
    {"ncclIbNetCommBase.qps", offsetof(IbComm, qps)},
    {"ncclIbNetCommBase.vProps.ndevs", offsetof(IbComm, n_devices)},
    {"ncclIbRecvComm.devs", offsetof(IbComm, devices)},
    {"ncclIbRecvCommDev", sizeof(RecvDevice)},
    {"ncclIbRecvCommDev.gpuFlush.qp", offsetof(RecvDevice, flush)},
    {"ncclIbQp", sizeof(IbQp)},
    {"ncclIbQp.qp", offsetof(IbQp, qp)},
    {"ncclIbQp.devIndex", offsetof(IbQp, device)},
    {"ncclIbQp.remDevIdx", offsetof(IbQp, device)},
    {"ncclIbNetCommBase.nRemDevs", offsetof(IbComm, n_remote)},
    {"ncclIbNetCommBase.remDevs", offsetof(IbComm, remote)},
    {"ncclIbDevInfo", sizeof(RemoteDevice)},
    {"ncclIbDevInfo.gid", offsetof(RemoteDevice, gid)},
    {"ncclIbDevInfo.lid", offsetof(RemoteDevice, lid)},
    {"ncclIbDevInfo.mtu", offsetof(RemoteDevice, mtu)},
    {"ncclIbDevInfo.link_layer", offsetof(RemoteDevice, link_layer)},
    {"ncclIbSendComm.devs", offsetof(IbComm, devices)},
    {"ncclIbSendCommDev", sizeof(RecvDevice)},
    {"ncclIbNetCommDevBase.gidInfo.localGid", offsetof(RecvDevice, local) + offsetof(GidInfo, gid)},
    {"ncclIbNetCommDevBase.gidInfo.localGidIndex",
     offsetof(RecvDevice, local) + offsetof(GidInfo, index)},
    {"ibv_qp.qp_num", offsetof(Qp, number)},
    {"ncclNetSocketComm.ctrlSock", offsetof(SocketComm, control)},
    {"ncclNetSocketComm.socks", offsetof(SocketComm, sockets)},
    {"ncclNetSocketComm.nSocks", offsetof(SocketComm, n_sockets)},
    {"ncclSocket", sizeof(Socket)},
    {"ncclSocket.fd", offsetof(Socket, fd)},
});
// In sendNetResources and recvNetResources.
inline constexpr auto RESOURCES = std::to_array<Field>({
    {"tpRank", offsetof(Resources, rank)},
    {"tpRemoteRank", offsetof(Resources, remote_rank)},
    {"channelId", offsetof(Resources, channel)},
    {"connIndex", offsetof(Resources, conn_index)},
    {"netDev", offsetof(Resources, net_dev)},
    {"useGdr", offsetof(Resources, use_gdr)},
});

inline LibraryLayout layout() {
    LibraryLayout layout;
    for (const auto &[name, value] : FIELDS)
        layout.offsets[name].value = value;
    layout.offsets["ncclConnFifo.size"].size_bytes = sizeof(FifoEntry::size);
    layout.offsets["sendNetResources.netSendComm"].value = offsetof(Resources, net_comm);
    layout.offsets["recvNetResources.netRecvComm"].value = offsetof(Resources, net_comm);
    for (const std::string resources : {"sendNetResources.", "recvNetResources."})
        for (const auto &[name, value] : RESOURCES)
            layout.offsets[resources + name].value = value;
    layout.data = {{"ncclComms", BASE - BIAS + offsetof(Roots, comms)},
                   {"nNcclComms", BASE - BIAS + offsetof(Roots, n_comms)},
                   {"ncclNetIb", NET_IB},
                   {"ncclNetSocket", NET_SOCKET}};
    return layout;
}

} // namespace collwire::nccl::memory
