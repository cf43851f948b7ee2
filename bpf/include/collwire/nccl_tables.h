/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Values of the BPF maps of the NCCL programs. Never in a capture. */
#ifndef COLLWIRE_NCCL_TABLES_H
#define COLLWIRE_NCCL_TABLES_H

#include "collwire/record.h"

struct cw_nccl_comm_key {
	__u64 comm;
	__u32 tgid;
	__u32 reserved;
};

/*
 * Ranks of a communicator on a node in NCCL's sense: all that reach one another over NVLink,
 * possibly in several machines.
 */
#define CW_NCCL_PROXIES 128

#define CW_NCCL_SHAPES_AT_HAND 8

/* A shape, and the number of shapes emitted in all processes when it was looked up. */
struct cw_nccl_shape_at_hand {
	__u64 shape;
	__u64 n_emitted;
};

/* A read of the programs that may fail: the memory is not present at that moment. */
enum cw_nccl_read {
	CW_NCCL_READ_NONE = 0,
	CW_NCCL_READ_PROXY_STATE = 1,
	CW_NCCL_READ_PROXY_OPS = 2,
	CW_NCCL_READ_LOCAL_RANK = 3,
	CW_NCCL_READ_RANKS_OF_NODE = 4,
	CW_NCCL_READ_PARENT_RANKS = 5,
	CW_NCCL_READ_PARENT_LOCAL_RANKS = 6,
	CW_NCCL_READ_SHARED = 7,
	CW_NCCL_READ_OWNER = 8,
	CW_NCCL_READ_OWNER_MAGIC = 9,
	CW_NCCL_READ_LOCAL_RANKS = 10,
	CW_NCCL_READ_LIST_COUNT = 11,
	CW_NCCL_READ_RANK_IN_NODE = 12,
	CW_NCCL_READ_OWN_PROXY = 13,
	CW_NCCL_READ_RANKS_OF_PARENT_NODE = 14,
	CW_NCCL_READ_PROXIES = 15,
	CW_NCCL_READ_LISTS = 16, /* of operations, one for each proxy */
	CW_NCCL_READ_OPERATION = 17,
	CW_NCCL_READ_TASK = 18,
	CW_NCCL_READ_CONNECTION = 19, /* up to its network's own structure */
	CW_NCCL_READ_ENDPOINT = 20,
	CW_NCCL_READS = 21,
};

struct cw_nccl_comm_entry {
	__u64 generation_ns; /* of its CW_KIND_NCCL_COMM record */
	__u64 mm;
	__u64 proxy_state;
	__u64 proxy_ops; /* array of struct ncclProxyOps; 0: not known */
	__u32 own;	 /* index of the entry that goes to this rank's own proxy */
	__u32 n_proxies; /* the full number, may exceed the array */
	__u32 is_run;	 /* consecutive indices */
	/* The last read that failed: enum cw_nccl_read, and where. */
	__u32 unread;
	__u64 unread_at;
	__u64 owner_unread_ns; /* the first time that the owner of its connections was not read */
	__u64 n_unread;	       /* the last launches, as many, lack operations: a read failed */
	/* Other ranks of its node: a bit each, from its first rank on. Ranks far from it lack. */
	__u64 neighbours;
	__s64 first_of_node;
	struct cw_nccl_shape_at_hand shapes[CW_NCCL_SHAPES_AT_HAND]; /* by bits of the shape */
	__u32 proxies[CW_NCCL_PROXIES];				     /* indices into proxy_ops */
};

struct cw_nccl_call_in_flight {
	__u64 comm;
	__u64 time_ns; /* of its CW_KIND_NCCL_CALL record */
};

struct cw_nccl_shape_key {
	__u64 shape;
	__u32 tgid;
	__u32 reserved;
};

struct cw_nccl_connection_key {
	__u64 connection;
	__u64 generation_ns; /* of the communicator */
	__u32 tgid;
	__u32 reserved;
};
/* Emitted, or given up after this many tries to read it. */
#define CW_NCCL_CONNECTION_EMITTED 4

#endif
