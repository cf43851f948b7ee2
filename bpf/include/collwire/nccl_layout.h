/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The offsets of the NCCL fields that the programs read, for one NCCL library file. The recorder
 * fills it in from the layout of the file (userspace/nccl/layout/) before it loads the programs for
 * that file, so that it is constant for the verifier.
 */
#ifndef COLLWIRE_NCCL_LAYOUT_H
#define COLLWIRE_NCCL_LAYOUT_H

#ifndef __bpf__
#include <linux/types.h>
#endif

#define CW_NCCL_NO_FIELD (~0U)

/*
 * X(member, "names in the layout"): offsets in bytes, CW_NCCL_NO_FIELD if a build has no such
 * field. A name without a field is the size of the type.
 */
#define CW_NCCL_OFFSETS(X)                                                                         \
	X(comm_hash, "ncclComm.commHash")                                                          \
	X(comm_rank, "ncclComm.rank")                                                              \
	X(comm_n_ranks, "ncclComm.nRanks")                                                         \
	X(comm_cuda_dev, "ncclComm.cudaDev")                                                       \
	X(comm_bus_id, "ncclComm.busId")                                                           \
	X(comm_node, "ncclComm.node")                                                              \
	X(comm_n_nodes, "ncclComm.nNodes")                                                         \
	X(comm_local_rank, "ncclComm.localRank")                                                   \
	X(comm_local_ranks, "ncclComm.localRanks")                                                 \
	X(comm_local_rank_to_rank, "ncclComm.localRankToRank")                                     \
	X(comm_top_parent_ranks, "ncclComm.topParentRanks")                                        \
	X(comm_top_parent_local_ranks, "ncclComm.topParentLocalRanks")                             \
	X(comm_op_count, "ncclComm.opCount")                                                       \
	X(comm_seq_number, "ncclComm.seqNumber")                                                   \
	X(comm_start_magic, "ncclComm.startMagic")                                                 \
	X(comm_shared_res, "ncclComm.sharedRes")                                                   \
	X(comm_proxy_state, "ncclComm.proxyState")                                                 \
	X(comm_channels, "ncclComm.channels")                                                      \
	X(comm_p2p_channels, "ncclComm.p2pnChannels")                                              \
	X(comm_p2p_channels_per_peer, "ncclComm.p2pnChannelsPerPeer")                              \
	X(comm_name, "ncclComm.config.commName")                                                   \
	X(shared_owner, "ncclSharedResources.owner")                                               \
	X(shared_coll_op_count, "ncclSharedResources.collOpCount")                                 \
	X(channel_size, "ncclChannel")                                                             \
	X(channel_ring_index, "ncclChannel.ring.index")                                            \
	X(job_comm, "ncclCommInitRankAsyncJob.comm")                                               \
	X(job_parent, "ncclCommInitRankAsyncJob.parent")                                           \
	X(job_color, "ncclCommInitRankAsyncJob.color")                                             \
	X(info_coll, "ncclInfo.coll")                                                              \
	X(info_sendbuff, "ncclInfo.sendbuff")                                                      \
	X(info_recvbuff, "ncclInfo.recvbuff")                                                      \
	X(info_count, "ncclInfo.count")                                                            \
	X(info_datatype, "ncclInfo.datatype")                                                      \
	X(info_op, "ncclInfo.op")                                                                  \
	X(info_root, "ncclInfo.root")                                                              \
	X(info_comm, "ncclInfo.comm")                                                              \
	X(info_stream, "ncclInfo.stream")                                                          \
	X(proxy_state_ops, "ncclProxyState.proxyOps")                                              \
	X(proxy_state_lists, "ncclProxyState.peerArraySize")                                       \
	X(proxy_state_net, "ncclProxyState.ncclNet")                                               \
	X(pool_ops, "ncclProxyOpsPool.ops")                                                        \
	X(op_size, "ncclProxyOp")                                                                  \
	X(op_connection, "ncclProxyOp.connection")                                                 \
	X(op_next, "ncclProxyOp.next")                                                             \
	X(op_nbytes, "ncclProxyOp.nbytes")                                                         \
	X(op_nsteps, "ncclProxyOp.nsteps")                                                         \
	X(op_root, "ncclProxyOp.root")                                                             \
	X(op_peer, "ncclProxyOp.peer")                                                             \
	X(op_task, "ncclProxyOp.task")                                                             \
	X(op_chunk_size, "ncclProxyOp.chunkSize")                                                  \
	X(op_slice_size, "ncclProxyOp.sliceSize")                                                  \
	X(op_loop_size, "ncclProxyOp.loopSize")                                                    \
	X(op_loop_offset, "ncclProxyOp.loopOffset")                                                \
	X(op_channel_size, "ncclProxyOp.channelSize")                                              \
	X(op_slice_steps, "ncclProxyOp.sliceSteps")                                                \
	X(op_chunk_steps, "ncclProxyOp.chunkSteps")                                                \
	X(op_channel, "ncclProxyOp.channelId")                                                     \
	X(op_dtype, "ncclProxyOp.dtype")                                                           \
	X(op_red_op, "ncclProxyOp.redOp")                                                          \
	X(op_coll, "ncclProxyOp.coll")                                                             \
	X(op_coll_api, "ncclProxyOp.collAPI")                                                      \
	X(op_pattern, "ncclProxyOp.pattern")                                                       \
	X(op_protocol, "ncclProxyOp.protocol")                                                     \
	X(op_algorithm, "ncclProxyOp.algorithm")                                                   \
	X(op_reg, "ncclProxyOp.reg")                                                               \
	X(op_n_channels, "ncclProxyOp.nChannels")                                                  \
	X(coll_func, "ncclTaskColl.func")                                                          \
	X(coll_sendbuff, "ncclTaskColl.sendbuff")                                                  \
	X(coll_recvbuff, "ncclTaskColl.recvbuff")                                                  \
	X(coll_count, "ncclTaskColl.count")                                                        \
	X(coll_root, "ncclTaskColl.root")                                                          \
	X(coll_datatype, "ncclTaskColl.datatype")                                                  \
	X(coll_op, "ncclTaskColl.opHost|ncclTaskColl.op")                                          \
	X(coll_n_channels, "ncclTaskColl.nChannels")                                               \
	X(coll_next, "ncclTaskColl.next")                                                          \
	X(coll_algorithm, "ncclTaskColl.algorithm")                                                \
	X(coll_protocol, "ncclTaskColl.protocol")                                                  \
	X(p2p_next, "ncclTaskP2p.next")                                                            \
	X(p2p_api, "ncclTaskP2p.collAPI")                                                          \
	X(p2p_n_channels, "ncclTaskP2p.nChannels")                                                 \
	X(p2p_func, "ncclTaskP2p.func")                                                            \
	X(p2p_buff, "ncclTaskP2p.buff")                                                            \
	X(p2p_count, "ncclTaskP2p.count")                                                          \
	X(p2p_datatype, "ncclTaskP2p.datatype")                                                    \
	X(p2p_root, "ncclTaskP2p.root")                                                            \
	X(p2p_bytes, "ncclTaskP2p.bytes")                                                          \
	X(bcast_next, "ncclTaskBcast.next")                                                        \
	X(bcast_sendbuff, "ncclTaskBcast.sendbuff")                                                \
	X(bcast_recvbuff, "ncclTaskBcast.recvbuff")                                                \
	X(bcast_bytes, "ncclTaskBcast.count")                                                      \
	X(bcast_root, "ncclTaskBcast.root")                                                        \
	X(plan_persistent, "ncclKernelPlan.persistent")                                            \
	X(plan_channel_mask, "ncclKernelPlan.channelMask")                                         \
	X(plan_proxy_ops, "ncclKernelPlan.proxyOpQueue.head")                                      \
	X(plan_colls, "ncclKernelPlan.collTaskQueue.head")                                         \
	X(plan_p2ps, "ncclKernelPlan.p2pTaskQueue.head")                                           \
	X(plan_bcasts, "ncclKernelPlan.bcastTaskQueue.head")                                       \
	X(connection_send, "ncclProxyConnection.send")                                             \
	X(connection_transport, "ncclProxyConnection.transport")                                   \
	X(connection_shared, "ncclProxyConnection.shared")                                         \
	X(connection_resources, "ncclProxyConnection.transportResources")                          \
	X(connection_append, "ncclProxyConnection.proxyAppendPtr")                                 \
	X(send_net_comm, "sendNetResources.netSendComm|sendResources.netSendComm")                 \
	X(send_tp_rank, "sendNetResources.tpRank|sendResources.tpRank")                            \
	X(send_tp_remote_rank, "sendNetResources.tpRemoteRank|sendResources.tpRemoteRank")         \
	X(send_net_dev, "sendNetResources.netDev|sendResources.netDev")                            \
	X(send_use_gdr, "sendNetResources.useGdr|sendResources.useGdr")                            \
	X(send_channel, "sendNetResources.channelId|sendResources.channelId")                      \
	X(send_conn_index, "sendNetResources.connIndex|sendResources.connIndex")                   \
	X(recv_net_comm, "recvNetResources.netRecvComm|recvResources.netRecvComm")                 \
	X(recv_tp_rank, "recvNetResources.tpRank|recvResources.tpRank")                            \
	X(recv_tp_remote_rank, "recvNetResources.tpRemoteRank|recvResources.tpRemoteRank")         \
	X(recv_net_dev, "recvNetResources.netDev|recvResources.netDev")                            \
	X(recv_use_gdr, "recvNetResources.useGdr|recvResources.useGdr")                            \
	X(recv_channel, "recvNetResources.channelId|recvResources.channelId")                      \
	X(recv_conn_index, "recvNetResources.connIndex|recvResources.connIndex")                   \
	X(send_step, "sendNetResources.step|sendResources.step")                                   \
	X(recv_step, "recvNetResources.step|recvResources.step")                                   \
	X(args_subs, "ncclProxyArgs.subs")                                                         \
	X(args_state, "ncclProxyArgs.state")                                                       \
	X(sub_size, "ncclProxySubArgs")                                                            \
	X(sub_connection, "ncclProxySubArgs.connection")                                           \
	X(sub_nsteps, "ncclProxySubArgs.nsteps")                                                   \
	X(sub_base, "ncclProxySubArgs.base")                                                       \
	X(ib_send_n_qps, "ncclIbNetCommBase.nqps|ncclIbSendComm.nqps")                             \
	X(ib_send_qps, "ncclIbNetCommBase.qps|ncclIbSendComm.qps")                                 \
	X(ib_recv_n_qps, "ncclIbNetCommBase.nqps|ncclIbRecvComm.nqps")                             \
	X(ib_recv_qps, "ncclIbNetCommBase.qps|ncclIbRecvComm.qps")                                 \
	X(ib_qp_size, "ncclIbQp")                                                                  \
	X(ib_qp_qp, "ncclIbQp.qp")                                                                 \
	X(ib_qp_dev_index, "ncclIbQp.devIndex")                                                    \
	X(ib_n_devs, "ncclIbNetCommBase.vProps.ndevs|ncclIbNetCommBase.ndevs")                     \
	X(ib_recv_devs, "ncclIbRecvComm.devs")                                                     \
	X(ib_recv_dev_size, "ncclIbRecvCommDev")                                                   \
	X(ib_flush_qp, "ncclIbRecvCommDev.gpuFlush.qp|ncclIbRecvComm.gpuFlush.qp")                 \
	X(ibv_qp_num, "ibv_qp.qp_num")                                                             \
	X(socket_ctrl, "ncclNetSocketComm.ctrlSock")                                               \
	X(socket_socks, "ncclNetSocketComm.socks")                                                 \
	X(socket_n_socks, "ncclNetSocketComm.nSocks")                                              \
	X(socket_size, "ncclSocket")                                                               \
	X(socket_fd, "ncclSocket.fd|ncclSocket.socketDescriptor")                                  \
	X(socket_type, "ncclSocket.type")

/* Callee-saved registers that may hold the kernel plan at ncclProxyStart. */
enum cw_nccl_register {
	CW_NCCL_NOWHERE = 0,
	CW_NCCL_RBX = 1,
	CW_NCCL_RBP = 2,
	CW_NCCL_R12 = 3,
	CW_NCCL_R13 = 4,
	CW_NCCL_R14 = 5,
	CW_NCCL_R15 = 6,
};

#define CW_NCCL_PATTERN_NUMBERS	    32
#define CW_NCCL_SOCKET_TYPE_NUMBERS 16

/*
 * The bytes of an operation and of a task that programs copy: every field they read lies inside,
 * except an operation's peer; its task lies after the copied fields.
 */
#define CW_NCCL_OP_HEAD_BYTES 96
#define CW_NCCL_OP_BYTES      176
#define CW_NCCL_TASK_BYTES    56
#define CW_NCCL_INFO_BYTES    80

struct cw_nccl_layout {
#define CW_NCCL_DECLARE(member, names) __u32 member;
	CW_NCCL_OFFSETS(CW_NCCL_DECLARE)
#undef CW_NCCL_DECLARE
	__u32 image_id;
	__u32 plan_register;	      /* enum cw_nccl_register */
	__u32 seq_numbers_count;      /* maintained without a profiler: 2.26 and later */
	__u32 warning_names_function; /* warnings go through ncclDebugLogV: 2.30 and later */
	__u32 calls_only;	      /* API-only: only the exported functions are known */
	__u32 reserved;
	/* Addresses in the file. */
	__u64 proxy_start; /* of the instruction under the probe */
	__u64 net_ib;
	__u64 net_socket;
	__u64 warning;				/* of the instruction under the probe */
	__u64 last_error;			/* 0: not known */
	__u8 patterns[CW_NCCL_PATTERN_NUMBERS]; /* enum cw_nccl_pattern by NCCL's number */
	/* enum cw_nccl_socket_type by NCCL's number; 0: not emitted */
	__u8 socket_types[CW_NCCL_SOCKET_TYPE_NUMBERS];
};

/* ncclDataType_t to the size of an element: two bits each, of 2^n bytes. From int8 on: int8, uint8,
 * int32, uint32, int64, uint64, half, float, double, bfloat16, two 8-bit floats. */
static inline __u64 cw_nccl_type_bytes(__u32 datatype)
{
	const __u32 powers = 0u | 0u << 2 | 2u << 4 | 2u << 6 | 3u << 8 | 3u << 10 | 1u << 12 |
			     2u << 14 | 3u << 16 | 1u << 18 | 0u << 20 | 0u << 22;

	return datatype < 12 ? 1ull << (powers >> (2 * datatype) & 3) : 1;
}

static inline __u64 cw_nccl_mix(__u64 hash, __u64 value)
{
	hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
	return hash ^ hash >> 29;
}

/*
 * The fields that a call and its task have in common: NCCL converts count and type of some into
 * bytes.
 */
static inline __u32 cw_nccl_arguments_hash(__u32 func, __u64 sendbuff, __u64 recvbuff, __u64 bytes,
					   __u32 root)
{
	__u64 hash = cw_nccl_mix(func, sendbuff);

	hash = cw_nccl_mix(hash, recvbuff);
	hash = cw_nccl_mix(hash, bytes);
	return (__u32)cw_nccl_mix(hash, root);
}

#endif
