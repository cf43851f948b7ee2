// SPDX-License-Identifier: Apache-2.0
#include "userspace/nccl/library/recipe.h"

#include <array>

namespace collwire::nccl {
namespace {

using enum Need;

constexpr unsigned TWO = elf::ARGUMENT_1 | elf::ARGUMENT_2;
constexpr unsigned SIX = (elf::ARGUMENT_6 << 1U) - 1;

constexpr std::array COMMUNICATOR_FUNCTIONS{
    FunctionRecipe{"ncclCommInitRankFunc"},
    // commFree is split in some builds. In all builds every communicator ends here.
    FunctionRecipe{"commCleanup"},
    FunctionRecipe{"ncclRasCommFini", Optional},
};
constexpr std::array COMMUNICATOR_FIELDS{
    FieldRecipe{"ncclComm.commHash"},
    FieldRecipe{"ncclComm.rank"},
    FieldRecipe{"ncclComm.nRanks"},
    FieldRecipe{"ncclComm.cudaDev"},
    FieldRecipe{"ncclCommInitRankAsyncJob.comm"},
    FieldRecipe{"ncclCommInitRankAsyncJob.newcomm"},
    FieldRecipe{"ncclCommInitRankAsyncJob.parent"},
    FieldRecipe{"ncclComm.nNodes"},
    FieldRecipe{"ncclComm.node"},
    FieldRecipe{"ncclComm.localRanks"},
    FieldRecipe{"ncclComm.localRank"},
    FieldRecipe{"ncclComm.busId"},
    FieldRecipe{"ncclComm.sharedRes"},
    FieldRecipe{"ncclComm.initState"},
    FieldRecipe{"ncclComm.localRankToRank"},
    FieldRecipe{"ncclComm.topParentRanks"},
    FieldRecipe{"ncclComm.topParentLocalRanks"},
    FieldRecipe{"ncclSharedResources.owner"},
    FieldRecipe{"ncclSharedResources.collOpCount"},
    FieldRecipe{"ncclCommInitRankAsyncJob.color", Optional},
    FieldRecipe{"ncclComm.startMagic", Optional},
    FieldRecipe{"ncclComm.endMagic", Optional},
    FieldRecipe{"ncclComm.magic", Optional},
    FieldRecipe{"ncclComm.rankToNode", Optional},
    FieldRecipe{"ncclComm.childCount|ncclComm.splitCount", Optional},
    FieldRecipe{"ncclComm.config.commName", Optional},
};

constexpr std::array OPERATION_FUNCTIONS{
    FunctionRecipe{"ncclEnqueueCheck"},
    FunctionRecipe{"ncclProxyStart"},
    FunctionRecipe{"hostStreamPlanTask", Exact, TWO, true},
};
constexpr std::array OPERATION_FIELDS{
    FieldRecipe{"ncclInfo.coll"},
    FieldRecipe{"ncclInfo.count"},
    FieldRecipe{"ncclInfo.datatype"},
    FieldRecipe{"ncclInfo.op"},
    FieldRecipe{"ncclInfo.root"},
    FieldRecipe{"ncclInfo.comm"},
    FieldRecipe{"ncclInfo.stream"},
    FieldRecipe{"ncclInfo.sendbuff"},
    FieldRecipe{"ncclInfo.recvbuff"},
    FieldRecipe{"ncclComm.proxyState"},
    FieldRecipe{"ncclComm.opCount"},
    FieldRecipe{"ncclComm.localRanks"},
    FieldRecipe{"ncclProxyState.proxyOps"},
    FieldRecipe{"ncclProxyOps.pool"},
    FieldRecipe{"ncclProxyOps.count"},
    FieldRecipe{"ncclProxyOps.nextOps"},
    FieldRecipe{"ncclProxyOps.nextOpsEnd"},
    FieldRecipe{"ncclProxyOpsPool.ops"},
    FieldRecipe{"ncclProxyOp"},
    FieldRecipe{"ncclProxyOp.connection"},
    FieldRecipe{"ncclProxyOp.next"},
    FieldRecipe{"ncclProxyOp.opCount"},
    FieldRecipe{"ncclProxyOp.channelId"},
    FieldRecipe{"ncclProxyOp.nbytes"},
    FieldRecipe{"ncclProxyOp.nsteps"},
    FieldRecipe{"ncclProxyOp.chunkSize"},
    FieldRecipe{"ncclProxyOp.root"},
    FieldRecipe{"ncclProxyOp.dtype"},
    FieldRecipe{"ncclProxyOp.pattern"},
    FieldRecipe{"ncclProxyOp.protocol"},
    FieldRecipe{"ncclProxyOp.coll", Optional}, // not in 2.18
    FieldRecipe{"ncclProxyOp.redOp"},
    FieldRecipe{"ncclProxyOp.sliceSteps"},
    FieldRecipe{"ncclProxyOp.chunkSteps"},
    FieldRecipe{"ncclProxyOp.reg", Optional},
    // Before 2.24 an operation has no link to its task.
    FieldRecipe{"ncclProxyOp.algorithm"},
    FieldRecipe{"ncclProxyOp.rank"},
    FieldRecipe{"ncclProxyOp.peer"},
    FieldRecipe{"ncclProxyOp.task"},
    FieldRecipe{"ncclTaskColl.func"},
    FieldRecipe{"ncclTaskColl.sendbuff"},
    FieldRecipe{"ncclTaskColl.recvbuff"},
    FieldRecipe{"ncclTaskP2p.buff"},
    FieldRecipe{"ncclTaskColl.count"},
    FieldRecipe{"ncclTaskColl.datatype"},
    FieldRecipe{"ncclTaskColl.root"},
    FieldRecipe{"ncclTaskColl.opHost|ncclTaskColl.op"},
    FieldRecipe{"ncclTaskP2p.func"},
    FieldRecipe{"ncclTaskP2p.count"},
    FieldRecipe{"ncclTaskP2p.datatype"},
    FieldRecipe{"ncclTaskP2p.root"},
    FieldRecipe{"ncclTaskP2p.bytes"},
    FieldRecipe{"ncclKernelPlan.comm"},
    FieldRecipe{"ncclKernelPlan.channelMask"},
    FieldRecipe{"ncclKernelPlan.collTaskQueue"},
    FieldRecipe{"ncclKernelPlan.p2pTaskQueue"},
    FieldRecipe{"ncclKernelPlan.proxyOpQueue"},
    FieldRecipe{"ncclTaskColl.nChannels", Optional},
    FieldRecipe{"ncclTaskP2p.collAPI", Optional},
    FieldRecipe{"ncclProxyOp.collAPI", Optional},
    FieldRecipe{"ncclProxyState.peerArraySize", Optional}, // not that of local ranks: by rank
    FieldRecipe{"ncclComm.seqNumber", Optional},
    FieldRecipe{"ncclComm.p2pnChannels", Optional},
    FieldRecipe{"ncclComm.p2pnChannelsPerPeer", Optional},
    FieldRecipe{"ncclProxyOp.nChannels", Optional},
    // For a kernel plan without operations.
    FieldRecipe{"ncclKernelPlan.proxyOpQueue.head", Optional},
    FieldRecipe{"ncclKernelPlan.collTaskQueue.head", Optional},
    FieldRecipe{"ncclKernelPlan.p2pTaskQueue.head", Optional},
    FieldRecipe{"ncclTaskColl.next", Optional},
    FieldRecipe{"ncclTaskColl.algorithm", Optional},
    FieldRecipe{"ncclTaskColl.protocol", Optional},
    FieldRecipe{"ncclTaskP2p.next", Optional},
    FieldRecipe{"ncclTaskP2p.nChannels", Optional},
    // Broadcasts of a group are one operation from 2.29 on.
    FieldRecipe{"ncclKernelPlan.bcastTaskQueue.head", Optional},
    FieldRecipe{"ncclTaskBcast.next", Optional},
    FieldRecipe{"ncclTaskBcast.sendbuff", Optional},
    FieldRecipe{"ncclTaskBcast.recvbuff", Optional},
    FieldRecipe{"ncclTaskBcast.count", Optional},
    FieldRecipe{"ncclTaskBcast.root", Optional},
};

constexpr std::array CONNECTION_FUNCTIONS{
    FunctionRecipe{"ncclProxyStart"},
    FunctionRecipe{"ncclIbCloseSend", Optional},
    FunctionRecipe{"ncclIbCloseRecv", Optional},
    FunctionRecipe{"ncclSocketClose", Optional},
};
constexpr std::array CONNECTION_DATA{
    DataRecipe{"ncclNetIb"},
    DataRecipe{"ncclNetSocket"},
};
constexpr std::array CONNECTION_FIELDS{
    FieldRecipe{"ncclComm.channels"},
    FieldRecipe{"ncclComm.nChannels"},
    FieldRecipe{"ncclComm.peerInfo"},
    FieldRecipe{"ncclChannel"},
    FieldRecipe{"ncclChannel.peers"},
    FieldRecipe{"ncclChannel.ring.prev"},
    FieldRecipe{"ncclChannel.ring.next"},
    FieldRecipe{"ncclChannel.ring.userRanks"},
    FieldRecipe{"ncclChannel.ring.index"},
    FieldRecipe{"ncclChannel.tree.up"},
    FieldRecipe{"ncclChannel.tree.down"},
    FieldRecipe{"ncclChannel.nvls.nHeads", Optional},
    FieldRecipe{"ncclChannel.nvls.headRank", Optional},
    FieldRecipe{"ncclChannel.nvls.treeUp", Optional},
    FieldRecipe{"ncclChannel.nvls.treeDown", Optional},
    FieldRecipe{"ncclComm.nvlsChannels", Optional},
    FieldRecipe{"ncclComm.nvlsChunkSize", Optional},
    FieldRecipe{"ncclComm.nvlsTreeMaxChunkSize", Optional}, // from 2.30 on
    FieldRecipe{"ncclChannelPeer.send"},
    FieldRecipe{"ncclChannelPeer.recv"},
    FieldRecipe{"ncclConnector"},
    FieldRecipe{"ncclConnector.connected"},
    FieldRecipe{"ncclConnector.proxyConn.connection"},
    FieldRecipe{"ncclConnector.proxyConn.sameProcess"},
    FieldRecipe{"ncclConnector.proxyConn.tpRank"},
    FieldRecipe{"ncclProxyState.ncclNet"},
    FieldRecipe{"ncclProxyConnection.send"},
    FieldRecipe{"ncclProxyConnection.transport"},
    FieldRecipe{"ncclProxyConnection.shared"},
    FieldRecipe{"ncclProxyConnection.transportResources"},
    FieldRecipe{"ncclProxyConnection.state"},
    FieldRecipe{"sendNetResources.netSendComm|sendResources.netSendComm"},
    FieldRecipe{"sendNetResources.tpRank|sendResources.tpRank"},
    FieldRecipe{"sendNetResources.tpRemoteRank|sendResources.tpRemoteRank"},
    FieldRecipe{"sendNetResources.netDev|sendResources.netDev"},
    FieldRecipe{"sendNetResources.channelId|sendResources.channelId"},
    FieldRecipe{"sendNetResources.connIndex|sendResources.connIndex"},
    FieldRecipe{"recvNetResources.netRecvComm|recvResources.netRecvComm"},
    FieldRecipe{"recvNetResources.tpRank|recvResources.tpRank"},
    FieldRecipe{"recvNetResources.tpRemoteRank|recvResources.tpRemoteRank"},
    FieldRecipe{"recvNetResources.netDev|recvResources.netDev"},
    FieldRecipe{"recvNetResources.channelId|recvResources.channelId"},
    FieldRecipe{"recvNetResources.connIndex|recvResources.connIndex"},
    // 2.18 has the queue pairs in either communicator, plain.
    FieldRecipe{"ncclIbNetCommBase.qps|ncclIbSendComm.qps"},
    FieldRecipe{"ncclIbNetCommBase.qps|ncclIbRecvComm.qps"},
    FieldRecipe{"ncclIbNetCommBase.nqps|ncclIbSendComm.nqps"},
    FieldRecipe{"ncclIbNetCommBase.nqps|ncclIbRecvComm.nqps"},
    FieldRecipe{"ncclIbQp|ncclIbSendComm.qps"},
    FieldRecipe{"ncclIbQp.qp|ncclIbSendComm.qps"},
    FieldRecipe{"ibv_qp.qp_num"},
    FieldRecipe{"ncclNetSocketComm.ctrlSock"},
    FieldRecipe{"ncclNetSocketComm.socks"},
    FieldRecipe{"ncclNetSocketComm.nSocks"},
    FieldRecipe{"ncclSocket"},
    FieldRecipe{"ncclSocket.fd|ncclSocket.socketDescriptor"},
    FieldRecipe{"sendNetResources.useGdr|sendResources.useGdr", Optional},
    FieldRecipe{"recvNetResources.useGdr|recvResources.useGdr", Optional},
    FieldRecipe{"ncclIbRecvCommDev.gpuFlush.qp|ncclIbRecvComm.gpuFlush.qp", Optional},
    FieldRecipe{"ncclIbRecvComm.devs", Optional},
    FieldRecipe{"ncclIbRecvCommDev", Optional},
    FieldRecipe{"ncclIbNetCommBase.vProps.ndevs|ncclIbNetCommBase.ndevs", Optional},
    FieldRecipe{"ncclIbQp.devIndex", Optional},
    FieldRecipe{"ncclIbQp.remDevIdx", Optional},
    FieldRecipe{"ncclIbNetCommBase.isSend", Optional},
    FieldRecipe{"ncclIbNetCommBase.nDataQps", Optional},
    FieldRecipe{"ncclIbNetCommBase.nRemDevs", Optional},
    FieldRecipe{"ncclIbNetCommBase.remDevs", Optional},
    FieldRecipe{"ncclIbDevInfo", Optional},
    FieldRecipe{"ncclIbDevInfo.gid|ncclIbDevInfo.spn", Optional},
    FieldRecipe{"ncclIbDevInfo.lid", Optional},
    FieldRecipe{"ncclIbDevInfo.mtu", Optional},
    FieldRecipe{"ncclIbDevInfo.link_layer", Optional},
    FieldRecipe{"ncclIbSendComm.devs", Optional},
    FieldRecipe{"ncclIbSendCommDev", Optional},
    FieldRecipe{"ncclIbNetCommDevBase.gidInfo.localGid", Optional},
    FieldRecipe{"ncclIbNetCommDevBase.gidInfo.localGidIndex", Optional},
    FieldRecipe{"ncclSocket.type", Optional},
    FieldRecipe{"ncclSocket.crypto", Optional},
};

// The sum, which exists in 2.24 to 2.26 only, is a rule of its own in file_layout.cpp.
constexpr std::array BYTES_FUNCTIONS{
    FunctionRecipe{"ncclProfilerStopProxyOpEvent", Exact, TWO},
};
constexpr std::array BYTES_FIELDS{
    FieldRecipe{"ncclProxySubArgs"},           FieldRecipe{"ncclProxySubArgs.connection"},
    FieldRecipe{"ncclProxySubArgs.transSize"}, FieldRecipe{"ncclProxyOp.sliceSize"},
    FieldRecipe{"ncclProxyOp.loopSize"},       FieldRecipe{"ncclProxyOp.loopOffset"},
    FieldRecipe{"ncclProxyOp.channelSize"},
};

constexpr std::array GRAPH_FUNCTIONS{
    FunctionRecipe{"hostStreamPlanTask", Exact, TWO, true},
    FunctionRecipe{"hostStreamPlanCallback"},
};
constexpr std::array GRAPH_FIELDS{
    FieldRecipe{"ncclKernelPlan.persistent"},
    FieldRecipe{"ncclComm.localPersistentRefs|ncclComm.persistentRefs", Optional},
    FieldRecipe{"ncclKernelPlan.isHostCbEnq", Optional},
};

constexpr std::array ERROR_FUNCTIONS{
    // From 2.30 on NCCL itself never calls ncclDebugLog.
    FunctionRecipe{"ncclDebugLogV|ncclDebugLog", Exact, SIX},
    FunctionRecipe{"ncclCommSetAsyncError", Optional, TWO},
};
constexpr std::array ERROR_DATA{
    DataRecipe{"ncclLastError"},
};
constexpr std::array ERROR_FIELDS{
    FieldRecipe{"ncclComm.asyncResult"},
    FieldRecipe{"ncclComm.abortFlag"},
    FieldRecipe{"ncclComm.revokedFlag", Optional},
};

constexpr std::array INSPECT_DATA{
    DataRecipe{"ncclComms"},
    DataRecipe{"nNcclComms"},
    DataRecipe{"ncclLastProxyState", Optional},
    DataRecipe{"gpuProgressCounterMonitors", Optional},
};
constexpr std::array INSPECT_FIELDS{
    FieldRecipe{"ncclProxyState.progressState"},
    FieldRecipe{"ncclProxyProgressState.active"},
    FieldRecipe{"ncclProxyArgs"},
    FieldRecipe{"ncclProxyArgs.subs"},
    FieldRecipe{"ncclProxyArgs.nsubs"},
    FieldRecipe{"ncclProxyArgs.done"},
    FieldRecipe{"ncclProxyArgs.opCount"},
    FieldRecipe{"ncclProxyArgs.state"},
    FieldRecipe{"ncclProxyArgs.pattern"},
    FieldRecipe{"ncclProxyArgs.protocol"},
    FieldRecipe{"ncclProxyArgs.next"},
    FieldRecipe{"ncclProxyArgs.nextPeer"},
    FieldRecipe{"ncclProxySubArgs"},
    FieldRecipe{"ncclProxySubArgs.connection"},
    FieldRecipe{"ncclProxySubArgs.channelId"},
    FieldRecipe{"ncclProxySubArgs.peer"},
    FieldRecipe{"ncclProxySubArgs.nsteps"},
    FieldRecipe{"ncclProxySubArgs.nbytes"},
    FieldRecipe{"ncclProxySubArgs.base"},
    FieldRecipe{"ncclProxySubArgs.posted"},
    FieldRecipe{"ncclProxySubArgs.received"},
    FieldRecipe{"ncclProxySubArgs.transmitted"},
    FieldRecipe{"ncclProxySubArgs.done"},
    FieldRecipe{"ncclProxyArgs.sliceSteps"},
    FieldRecipe{"ncclProxyArgs.dtype"},
    FieldRecipe{"ncclProxyArgs.redOp"},
    // What the next step of a connection waits on.
    FieldRecipe{"sendNetResources.recvMem|sendResources.recvMem"},
    FieldRecipe{"recvNetResources.sendMem|recvResources.sendMem"},
    FieldRecipe{"recvNetResources.recvMem|recvResources.recvMem"},
    FieldRecipe{"sendNetResources.buffSizes|sendResources.buffSizes"},
    FieldRecipe{"sendNetResources.map.mems|sendResources.map.mems"},
    FieldRecipe{"sendNetResources.map.offsets.buffs|sendResources.map.offsets.buffs"},
    FieldRecipe{"connectMapMem"},
    FieldRecipe{"connectMapMem.cpuPtr"},
    FieldRecipe{"ncclRecvMem.tail"},
    FieldRecipe{"ncclRecvMem.connFifo|ncclRecvMem.sizesFifo"},
    FieldRecipe{"ncclConnFifo.size|ncclRecvMem.sizesFifo"},
    FieldRecipe{"ncclSendMem.head"},
    FieldRecipe{"ncclIbSendComm.ctsFifo|ncclIbSendComm.fifo"},
    FieldRecipe{"ncclIbNetCommBase.fifoHead|ncclIbSendComm.fifoHead"},
    FieldRecipe{"ncclIbSendFifo.idx"},
    FieldRecipe{"ncclProxyState.thread"},
    FieldRecipe{"ncclProxyProgressState.thread"},
    FieldRecipe{"ncclProxyState.tpRank"},
    FieldRecipe{"ncclProxyState.asyncResult", Optional},
    FieldRecipe{"ncclConnFifo", Optional},
    FieldRecipe{"ncclProxyArgs.coll", Optional},
    FieldRecipe{"ncclProxyArgs.collAPI", Optional},
    FieldRecipe{"ncclProxyArgs.algorithm", Optional},
    FieldRecipe{"ncclProxySubArgs.loopSize", Optional},
    FieldRecipe{"ncclProxySubArgs.reg", Optional},
    FieldRecipe{"ncclComm.finalizeCalled", Optional},
    FieldRecipe{"ncclProxyState.comm", Optional},
    FieldRecipe{"ncclComm.startMagic", Optional},
    FieldRecipe{"ncclComm.endMagic", Optional},
    FieldRecipe{"ncclComm", Optional},
    // Communicators under construction, and ended ones.
    FieldRecipe{"ncclComm.bootstrap", Optional},
    FieldRecipe{"ncclComm.destroyFlag", Optional},
    FieldRecipe{"ncclCommInitRankAsyncJob", Optional},
    FieldRecipe{"ncclCommInitRankAsyncJob.commId", Optional},
    FieldRecipe{"ncclCommInitRankAsyncJob.nranks", Optional},
    FieldRecipe{"ncclCommInitRankAsyncJob.myrank", Optional},
    FieldRecipe{"bootstrapState.magic", Optional},
    FieldRecipe{"bootstrapState.rank", Optional},
    FieldRecipe{"bootstrapState.nranks", Optional},
    FieldRecipe{"bootstrapState.ring.socket.send|bootstrapState.ringSendSocket", Optional},
    FieldRecipe{"bootstrapState.ring.socket.recv|bootstrapState.ringRecvSocket", Optional},
    FieldRecipe{"bootstrapState.peerP2pAddresses|bootstrapState.peerCommAddresses", Optional},
    FieldRecipe{"ncclSocket.state", Optional},
    FieldRecipe{"ncclSocket.addr", Optional},
    FieldRecipe{"extInfo.rank", Optional},
    FieldRecipe{"extInfo.nranks", Optional},
    FieldRecipe{"extInfo.listenRootAddress|extInfo.extAddressListenRoot", Optional},
    // The pool of proxy operations.
    FieldRecipe{"ncclProxyState.proxyOps", Optional},
    FieldRecipe{"ncclProxyState.tpLocalnRanks", Optional},
    FieldRecipe{"ncclProxyOps", Optional},
    FieldRecipe{"ncclProxyOps.pool", Optional},
    FieldRecipe{"ncclProxyOps.freeOp", Optional},
    FieldRecipe{"ncclProxyOpsPool.freeOps", Optional},
};

// From 2.23 on. 2.27 made one function of two.
constexpr std::array TIME_FUNCTIONS{
    FunctionRecipe{"ncclProfilerStartProxyOpEvent|ncclProfilerStartSendProxyOpEvent", Exact, TWO},
    FunctionRecipe{"ncclProfilerStartProxyOpEvent|ncclProfilerStartRecvProxyOpEvent", Exact, TWO},
    FunctionRecipe{"ncclProfilerStopProxyOpEvent", Exact, TWO},
};
constexpr std::array TIME_FIELDS{
    FieldRecipe{"ncclProxyArgs.subs"},
    FieldRecipe{"ncclProxyArgs.state"},
    FieldRecipe{"ncclProxySubArgs"},
    FieldRecipe{"ncclProxySubArgs.connection"},
    FieldRecipe{"ncclProxySubArgs.nsteps"},
    FieldRecipe{"ncclProxySubArgs.base"},
    FieldRecipe{"ncclProxyConnection.proxyAppendPtr"},
    FieldRecipe{"sendNetResources.step|sendResources.step"},
    FieldRecipe{"recvNetResources.step|recvResources.step"},
};

constexpr std::array CAPABILITIES{
    CapabilityRecipe{"communicators", COMMUNICATOR_FUNCTIONS, {}, COMMUNICATOR_FIELDS},
    CapabilityRecipe{"operations", OPERATION_FUNCTIONS, {}, OPERATION_FIELDS},
    CapabilityRecipe{"connections", CONNECTION_FUNCTIONS, CONNECTION_DATA, CONNECTION_FIELDS},
    CapabilityRecipe{"bytes", BYTES_FUNCTIONS, {}, BYTES_FIELDS},
    CapabilityRecipe{"graphs", GRAPH_FUNCTIONS, {}, GRAPH_FIELDS},
    CapabilityRecipe{"errors", ERROR_FUNCTIONS, ERROR_DATA, ERROR_FIELDS},
    CapabilityRecipe{"inspect", {}, INSPECT_DATA, INSPECT_FIELDS},
    CapabilityRecipe{"times", TIME_FUNCTIONS, {}, TIME_FIELDS},
};

constexpr std::array<std::string_view, 12> UNITS{
    "bootstrap.cc",
    "proxy.cc",
    "init.cc",
    "enqueue.cc",
    "transport/net.cc",
    "transport/net_ib.cc",
    "transport/net_socket.cc",
    "net_ib/connect.cc",
    "net_ib/common.cc",
    "net_ib/p2p.cc",
    "net_socket/common.cc",
    "group.cc",
};

constexpr std::array<std::string_view, 3> PREFIXES{"ncclPattern", "ncclFunc", "ncclSocketType"};

// The exported ones first.
constexpr std::array<std::string_view, 84> HOST_FUNCTIONS{
    "ncclGetUniqueId",
    "ncclCommInitRank",
    "ncclCommInitRankConfig",
    "ncclCommInitRankScalable",
    "ncclCommInitAll",
    "ncclCommSplit",
    "ncclCommShrink",
    "ncclCommGrow",
    "ncclCommFinalize",
    "ncclCommDestroy",
    "ncclCommAbort",
    "ncclCommRevoke",
    "ncclCommSuspend",
    "ncclCommResume",
    "ncclCommRegister",
    "ncclCommDeregister",
    "ncclCommWindowRegister",
    "ncclCommWindowDeregister",
    "ncclDevCommCreate",
    "ncclDevCommDestroy",
    "ncclGroupEnd",
    "ncclGroupSimulateEnd",
    "ncclAllReduce",
    "ncclAllGather",
    "ncclReduceScatter",
    "ncclReduce",
    "ncclBroadcast",
    "ncclBcast",
    "ncclAlltoAll",
    "ncclGather",
    "ncclScatter",
    "ncclSend",
    "ncclRecv",
    "ncclMemAlloc",
    "ncclMemFree",
    // Inside.
    "ncclAsyncJobMain",
    "ncclCommInitRankFunc",
    "ncclCommInitRankDev",
    "initTransportsRank",
    "bootstrapRoot",
    "bootstrapInit",
    "bootstrapSplit",
    "bootstrapAllGather",
    "bootstrapSend",
    "bootstrapRecv",
    "bootstrapBarrier",
    "bootstrapIntraNodeBarrier",
    "bootstrapIntraNodeAllGather",
    "bootstrapIntraNodeBroadcast",
    "bootstrapBroadcast",
    "sendToRoot",
    "ringAllInfo",
    "ncclSocketConnect",
    "ncclSocketAccept",
    "ncclSocketRecv",
    "ncclSocketSend",
    "ncclTransportP2pSetup",
    "ncclTransportRingConnect",
    "ncclTransportTreeConnect",
    "ncclProxyConnect",
    "ncclProxyCallBlocking",
    "ncclPollProxyResponse",
    "ncclProxyInit",
    "ncclProxyStop",
    "ncclCommEnsureReady",
    "commDestroySync",
    "commReclaim",
    "commCleanup",
    "commFree",
    "groupLaunch",
    "ncclLocalOpAppend",
    "ncclProxySaveOp",
    "uploadProxyOps",
    // What NCCL's own threads run.
    "ncclProxyService",
    "ncclProxyServiceUDS",
    "ncclProxyProgress",
    "persistentSocketThread",
    "ncclIbAsyncThreadMain",
    "rasThreadMain",
    "ncclGinProgress",
    "ncclGinProxyProgress",
    "ncclRmaSocketProxyProgress",
    "ncclProfilerThreadFunc",
    "bootstrapAsyncSendMain",
};

} // namespace

std::span<const std::string_view> host_functions() {
    return HOST_FUNCTIONS;
}

std::span<const CapabilityRecipe> capability_recipes() {
    return CAPABILITIES;
}

std::span<const std::string_view> units_of_types() {
    return UNITS;
}

std::span<const std::string_view> enumerator_prefixes() {
    return PREFIXES;
}

} // namespace collwire::nccl
