/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The records of NCCL calls and launches, and of the operations in a launch. */
#ifndef COLLWIRE_NCCL_LAUNCH_RECORDS_H
#define COLLWIRE_NCCL_LAUNCH_RECORDS_H

#include "collwire/record.h"

/* ncclFunc_t. Since 2.18 it only grew: layouts are checked for that. */
enum cw_nccl_func {
	CW_NCCL_BROADCAST = 0,
	CW_NCCL_REDUCE = 1,
	CW_NCCL_ALL_GATHER = 2,
	CW_NCCL_REDUCE_SCATTER = 3,
	CW_NCCL_ALL_REDUCE = 4,
	CW_NCCL_SEND_RECV = 5,
	CW_NCCL_SEND = 6,
	CW_NCCL_RECV = 7,
	CW_NCCL_ALL_TO_ALL = 8,
	CW_NCCL_SCATTER = 9,
	CW_NCCL_GATHER = 10,
	CW_NCCL_ALL_GATHER_V = 11,
	CW_NCCL_PUT_SIGNAL = 12,
	CW_NCCL_SIGNAL = 13,
	CW_NCCL_WAIT_SIGNAL = 14,
	CW_NCCL_FUNCS = 15,
	CW_NCCL_FUNC_UNKNOWN = 0xff,
};

/* ncclPattern_t: its numbers change between versions, these do not. */
enum cw_nccl_pattern {
	CW_NCCL_PATTERN_UNKNOWN = 0,
	CW_NCCL_PATTERN_RING = 1,
	CW_NCCL_PATTERN_RING_TWICE = 2,
	CW_NCCL_PATTERN_PIPELINE_FROM = 3,
	CW_NCCL_PATTERN_PIPELINE_TO = 4,
	CW_NCCL_PATTERN_TREE_UP = 5,
	CW_NCCL_PATTERN_TREE_DOWN = 6,
	CW_NCCL_PATTERN_TREE_UP_DOWN = 7,
	CW_NCCL_PATTERN_COLLNET_CHAIN = 8,
	CW_NCCL_PATTERN_COLLNET_DIRECT = 9,
	CW_NCCL_PATTERN_NVLS = 10,
	CW_NCCL_PATTERN_NVLS_TREE = 11,
	CW_NCCL_PATTERN_PAT_UP = 12,
	CW_NCCL_PATTERN_PAT_DOWN = 13,
	CW_NCCL_PATTERN_SEND = 14,
	CW_NCCL_PATTERN_RECV = 15,
	CW_NCCL_PATTERN_PROFILER = 16,
	CW_NCCL_PATTERNS = 17,
};

enum cw_nccl_algorithm {
	CW_NCCL_TREE = 0,
	CW_NCCL_RING = 1,
	CW_NCCL_COLLNET_DIRECT = 2,
	CW_NCCL_COLLNET_CHAIN = 3,
	CW_NCCL_NVLS = 4,
	CW_NCCL_NVLS_TREE = 5,
	CW_NCCL_PAT = 6,
	CW_NCCL_ALGORITHM_UNKNOWN = 0xff,
};

enum cw_nccl_protocol {
	CW_NCCL_LL = 0,
	CW_NCCL_LL128 = 1,
	CW_NCCL_SIMPLE = 2,
	CW_NCCL_PROTOCOL_UNKNOWN = 0xff,
};

enum cw_nccl_call_flags {
	CW_NCCL_CALL_FAILED = 1 << 0, /* it returned an error */
	CW_NCCL_CALL_RETURNED = 1 << 1,
};

/* One call of the API, in the order in which a process made them. */
struct cw_nccl_call {
	struct cw_header header;
	__u64 comm;
	__u32 tgid;
	__u32 tid;
	__u64 count;
	__u64 stream;
	__u32 arguments_hash; /* the same hash as in its launch */
	__s32 root;	      /* or peer */
	__s32 reduction;      /* ncclRedOp_t */
	__u8 func;	      /* enum cw_nccl_func */
	__u8 datatype;	      /* ncclDataType_t */
	__u8 flags;	      /* enum cw_nccl_call_flags, of a writer that waits for the return */
	__u8 reserved;
};

/* With --api-returns: a call returned. A call that hangs has no such record. */
struct cw_nccl_return {
	struct cw_header header;
	__u64 comm;
	__u64 call_ns; /* time of the cw_nccl_call */
	__u32 tgid;
	__u32 tid;
	__u32 result; /* ncclResult_t: 7, in progress, is no error */
	__u32 reserved;
};

/* A task of a launch: the hash of its arguments identifies its call. */
struct cw_nccl_task_ref {
	__u32 arguments_hash;
	__u32 task; /* low half of its address, equal for equal tasks */
};

enum cw_nccl_launch_flags {
	CW_NCCL_LAUNCH_GRAPH = 1 << 0, /* its kernel plan was captured: each launch is a replay */
	CW_NCCL_LAUNCH_TRUNCATED = 1 << 1, /* more operations than were walked */
	CW_NCCL_LAUNCH_LAUNCHED = 1 << 2,  /* `launched` is valid */
	CW_NCCL_LAUNCH_FAULT = 1 << 3,	   /* incomplete: some memory could not be read */
	CW_NCCL_LAUNCH_LOCAL = 1 << 4,	   /* its kernel plan has no proxy operations */
};

#define CW_NCCL_LAUNCH_TASKS 4

/* One kernel plan gives its operations to the proxy thread. */
struct cw_nccl_launch {
	struct cw_header header;
	__u64 comm;
	__u32 tgid;
	__u32 tid;
	__u64 plan;
	__u64 shape; /* hash of the shape of its operations; 0: not known */
	/*
	 * NCCL's own count, this launch included: collectives of this communicator (seqNumber) or
	 * of all that share its connections (collOpCount before 2.26).
	 */
	__u64 launched;
	__u32 n_ops;
	__u16 n_tasks; /* the first are in here, the others in cw_nccl_launch_tasks */
	__u8 flags;    /* enum cw_nccl_launch_flags */
	__u8 reserved;
	struct cw_nccl_task_ref tasks[CW_NCCL_LAUNCH_TASKS];
	__u64 channel_mask; /* of its kernel plan: its kernel has a block for each bit; 0: not known
			     */
};

#define CW_NCCL_MORE_TASKS 4

struct cw_nccl_launch_tasks {
	struct cw_header header;
	__u64 comm;
	__u64 plan;
	__u64 launch_ns; /* time of the cw_nccl_launch */
	__u32 tgid;
	__u16 first; /* index of the first one in here */
	__u16 n;
	struct cw_nccl_task_ref tasks[CW_NCCL_MORE_TASKS];
};

/* The shape of a launch: everything that is equal in each launch of it. */
struct cw_nccl_shape_task {
	struct cw_header header;
	__u64 comm;
	__u64 shape;
	__u32 tgid;
	__u32 index;
	__u64 count;
	__u64 bytes; /* of p2p: to or from the peer */
	__s32 root;
	__s32 reduction;
	__u8 func;
	__u8 api_func; /* the API function it is part of, if that is another one */
	__u8 datatype;
	__u8 algorithm;
	__u8 protocol;
	__u8 n_channels; /* 0: not known */
	__u8 reserved[2];
};

enum cw_nccl_op_flags {
	CW_NCCL_OP_OTHER_PROXY = 1 << 0, /* given to the proxy of another rank (PXN) */
};

/* Of grouped broadcasts: an operation belongs to all of them that use its connection. */
#define CW_NCCL_NO_TASK (~0U)

/* One operation of a proxy: the transfer of one connection for a task. NCCL's ncclProxyOp. */
struct cw_nccl_op {
	__u64 connection; /* its address in the process of its proxy */
	__u64 nbytes;
	__u64 chunk_bytes;
	__u64 slice_bytes;
	__u64 loop_bytes;
	__u64 loop_offset_bytes;
	__u64 channel_bytes;
	__u32 nsteps;
	__u32 task; /* index of its task in the shape, or CW_NCCL_NO_TASK */
	__s32 root;
	__s32 peer;
	__s32 ring_index; /* this rank's place in the ring of the channel */
	__u8 channel;
	__u8 func;
	__u8 pattern; /* enum cw_nccl_pattern */
	__u8 protocol;
	__u8 algorithm;
	__u8 slice_steps;
	__u8 chunk_steps;
	__u8 datatype;
	__u8 reduction;
	__u8 registered;
	__u8 flags;	  /* enum cw_nccl_op_flags */
	__u8 proxy_index; /* lowest byte of cw_nccl_shape_ops.proxy_indices */
};

#define CW_NCCL_SHAPE_OPS 1

struct cw_nccl_shape_ops {
	struct cw_header header;
	__u64 comm;
	__u64 shape;
	__u32 tgid;
	__u32 n_ops; /* of the whole shape */
	__u32 first;
	__u32 n;
	struct cw_nccl_op ops[CW_NCCL_SHAPE_OPS];
	/* Of each, in NCCL's list of the proxies' pools: by local rank, or from 2.30 on by rank,
	 * if there are not as many pools as local ranks. */
	__u32 proxy_indices[CW_NCCL_SHAPE_OPS];
	__u32 reserved;
};

CW_ASSERT_SIZE(cw_nccl_call, 64);
CW_ASSERT_SIZE(cw_nccl_return, 48);
CW_ASSERT_SIZE(cw_nccl_launch, 104);
CW_ASSERT_SIZE(cw_nccl_launch_tasks, 80);
CW_ASSERT_SIZE(cw_nccl_shape_task, 72);
CW_ASSERT_SIZE(cw_nccl_op, 88);
CW_ASSERT_SIZE(cw_nccl_shape_ops, 144);

#endif
