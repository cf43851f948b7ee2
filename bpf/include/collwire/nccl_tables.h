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

struct cw_nccl_comm_entry {
	__u64 generation_ns; /* of its CW_KIND_NCCL_COMM record */
	__u64 mm;
	__u64 proxy_state;
	__u64 proxy_ops; /* array of struct ncclProxyOps; 0: not known */
	__u32 own;	 /* index of the entry that goes to this rank's own proxy */
	__u32 n_proxies; /* the full number, may exceed the array */
	__u32 is_run;	 /* consecutive indices */
	__u32 reserved;
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
