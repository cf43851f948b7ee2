/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The records of NCCL library files, the processes that map them, and their communicators.
 * docs/sources/nccl.md lists the source of each.
 *
 *
 * The name of a communicator is (tgid, address of struct ncclComm) from its CW_KIND_NCCL_COMM
 * record to its CW_KIND_NCCL_COMM_END record: addresses are reused. The same holds for a connection
 * within its communicator. Times decide, not the order in the file.
 */
#ifndef COLLWIRE_NCCL_COMM_RECORDS_H
#define COLLWIRE_NCCL_COMM_RECORDS_H

#include "collwire/record.h"

/* Indices of cw_nccl_image.rungs. */
enum cw_nccl_capability {
	CW_NCCL_COMMUNICATORS = 0,
	CW_NCCL_OPERATIONS = 1,
	CW_NCCL_CONNECTIONS = 2,
	CW_NCCL_BYTES = 3,
	CW_NCCL_GRAPHS = 4,
	CW_NCCL_ERRORS = 5,
	CW_NCCL_INSPECT = 6,
	CW_NCCL_TIMES = 7,
	CW_NCCL_CAPABILITIES = 8,
};

enum cw_rung {
	CW_RUNG_PROCESS = 0,
	CW_RUNG_INFERRED = 1,
	CW_RUNG_EXACT = 2,
};

/* An NCCL library file that a process has mapped. */
struct cw_nccl_image {
	struct cw_header header;
	__u32 image_id; /* unique in the recording */
	__u32 version;	/* as ncclGetVersion returns it, 22809 */
	__u64 inode;
	__u8 rungs[CW_NCCL_CAPABILITIES]; /* enum cw_rung by enum cw_nccl_capability */
	char build_id[48];		  /* hex */
	char path[256];			  /* as the process sees it */
	char reason[256];		  /* why it is not traced; empty: it is */
	char basis[256];		  /* the evidence for the layout of operations */
};

/* A process that has mapped a library file, and since when it is watched. */
struct cw_nccl_process {
	struct cw_header header;
	__u32 tgid;
	__u32 image_id;
	__u64 start_boottime_ns;
	__u64 gone_ns;	/* the recorder saw its exit by then; 0: it still ran */
	__u64 there_ns; /* of an exited process: it still ran then */
};

enum cw_nccl_comm_flags {
	CW_NCCL_COMM_CREATED = 1 << 0, /* seen from its creation: calls count from 0 */
	CW_NCCL_COMM_OUTSIDE =
		1 << 1, /* read from the process's memory, not discovered in a call */
	CW_NCCL_COMM_LAUNCHED = 1 << 2,	  /* `launched` is valid */
	CW_NCCL_COMM_SHARED = 1 << 3,	  /* shares connections and counters with its parent */
	CW_NCCL_COMM_CALLS_ONLY = 1 << 4, /* API-only: its launches cannot be read */
};

struct cw_nccl_comm {
	struct cw_header header;
	__u32 tgid;
	__u32 tid; /* 0: read by the recorder */
	__u64 comm;
	__u64 comm_hash;
	__u64 start_boottime_ns; /* of the process */
	__u64 bus_id;
	__u64 parent; /* address of its parent; 0: none or not known */
	__u64 proxy_state;
	__u64 op_count; /* starts, counted by NCCL */
	__u64 launched;
	__u32 image_id;
	__u32 flags; /* enum cw_nccl_comm_flags */
	__s32 rank;
	__s32 n_ranks;
	__s32 cuda_dev;
	__s32 node;
	__s32 n_nodes;
	__s32 local_rank;
	__s32 local_ranks;
	__s32 color; /* of the split that created it */
	char name[CW_NAME_BYTES];
	__u32 p2p_channels; /* channels for sends and receives, a power of two; 0: not known */
	__u32 p2p_channels_per_peer; /* of these at most for one peer; 0: not known */
};

struct cw_nccl_comm_end {
	struct cw_header header;
	__u32 tgid;
	__u32 tid;
	__u64 comm;
};

/* One channel of a communicator: rings and trees as NCCL laid them out. */
struct cw_nccl_channel {
	struct cw_header header;
	__u32 tgid;
	__u32 channel;
	__u64 comm;
	__s32 ring_prev;
	__s32 ring_next;
	__s32 ring_index;
	__s32 tree_up;
	__s32 tree_down[3];
	__u32 n_order; /* ranks in the order of the ring, from this one on; 0: not read */
#ifndef __cplusplus
	__s32 order[]; /* filled with one more to a multiple of 8 bytes */
#endif
};

/*
 * A rank's place in NVLS (connect.cc connectNvls): the ranks of a node share their data among heads
 * over NVLink, and each head works with the heads of its number on the other nodes. The trees
 * between these are two, for even and for odd channels.
 */
struct cw_nccl_nvls {
	struct cw_header header;
	__u64 comm;
	__u32 tgid;
	__s32 n_heads;
	__s32 head_rank;	/* its number among the heads; -1: this rank is not a head */
	__s32 n_channels;	/* of NVLS at most */
	__s32 chunk_bytes;	/* of a head in a loop, before NCCL reduces it for few bytes */
	__s32 tree_chunk_bytes; /* at most, of NVLS_TREE; 0: not known */
	__s32 tree_up[2];	/* of even and odd channels: ranks; -1: none */
	__s32 tree_down[4];	/* two of even channels, two of odd ones */
};

/* A parameter as the process has read it from its environment or default. */
struct cw_nccl_param {
	struct cw_header header;
	__u32 tgid;
	__u32 image_id;
	__s64 value;
	char name[48]; /* NCCL's name for it: IbQpsPerConn */
};

CW_ASSERT_SIZE(cw_nccl_image, 856);
CW_ASSERT_SIZE(cw_nccl_process, 48);
CW_ASSERT_SIZE(cw_nccl_comm, 200);
CW_ASSERT_SIZE(cw_nccl_comm_end, 32);
CW_ASSERT_SIZE(cw_nccl_channel, 64);
CW_ASSERT_SIZE(cw_nccl_nvls, 72);
CW_ASSERT_SIZE(cw_nccl_param, 80);

#endif
