/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The records of work requests, counted per queue pair as user space sees it. */
#ifndef COLLWIRE_POST_RECORDS_H
#define COLLWIRE_POST_RECORDS_H

#include "collwire/record.h"

/* Work requests by opcode, as far as the wire distinguishes them. */
enum cw_post_class {
	CW_POST_SEND = 0,
	CW_POST_SEND_IMM = 1,
	CW_POST_SEND_INV = 2,
	CW_POST_WRITE = 3,
	CW_POST_WRITE_IMM = 4,
	CW_POST_READ = 5,
	CW_POST_ATOMIC = 6,
	CW_POST_ATOMIC_WRITE = 7,
	CW_POST_FLUSH = 8,
	CW_POST_LOCAL = 9,  /* LOCAL_INV, BIND_MW: nothing on the wire */
	CW_POST_OTHER = 10, /* TSO, DRIVER1, unknown */
	CW_POST_CLASSES = 11,
};

#define CW_MTU_CLASSES 5 /* path MTU 256, 512, 1024, 2048, 4096 */

struct cw_post_class_counters {
	__u64 wrs;
	__u64 zero_length_wrs;	       /* are in wrs, too */
	__u64 bytes;		       /* sum of the SGE lengths, or inline data */
	__u64 pad_bytes;	       /* to the multiple of 4 of each message */
	__u64 packets[CW_MTU_CLASSES]; /* max(1, ceil(length / MTU)) summed: the path MTU is known
					  only later */
};

struct cw_post_counters {
	__u64 first_ns;
	__u64 last_ns; /* time of the last increase that the recorder saw: at most one interval late
			*/
	__u64 posts;   /* calls (post_send) or commits (wr_complete) */
	__u64 truncated_posts; /* chains or SGE lists longer than the walk: their rest is not
				  counted */
	__u64 fault_posts;     /* a work request could not be read */
	__u64 aborted_wrs;     /* ibv_wr_abort */
	struct cw_post_class_counters classes[CW_POST_CLASSES];
	__u64 multi_packet_reads[CW_MTU_CLASSES]; /* READs longer than one path MTU */
};

/* A queue pair as user space sees it. The epoch counts destroyed QPs with this number in this
 * process. */
struct cw_verbs_key {
	__u64 context; /* address of struct ibv_context */
	__u32 tgid;
	__u32 qpn;
	__u32 epoch;
	__u32 reserved;
};

/* The header's time is one after the counters were read. */
struct cw_qp_post {
	struct cw_header header;
	struct cw_verbs_key key;
	struct cw_post_counters counters; /* cumulative */
};

/* First post seen on a QP. Its time lies in the life of the QP (device, qpn) that it belongs to. */
struct cw_verbs_qp {
	struct cw_header header;
	struct cw_verbs_key key;
	__u64 qp_address;
	__u64 start_boottime_ns; /* of the thread group's leader */
	__u32 qp_type;		 /* enum ibv_qp_type */
	__u32 handle;
	char device[CW_NAME_BYTES];
};

enum cw_posts_counted {
	CW_POSTS_ALL = 0,    /* of every process */
	CW_POSTS_SLICE = 1,  /* the same, and the next change is the end of a slice */
	CW_POSTS_PAUSED = 2, /* none: the probes are detached */
};

/*
 * Whether posts are counted from header.time_ns on. Before a pause it is the time before the first
 * probe was detached, after one the time when the last one was attached.
 */
struct cw_post_slice {
	struct cw_header header;
	__u64 on_ns;	 /* as asked for: of a slice */
	__u64 period_ns; /* from the start of one slice to that of the next */
	__u64 change_ns; /* the kernel took so long to place or remove the probes: before this time,
			    or after it */
	__u32 tgid;	 /* 0: all processes */
	__u32 counted;	 /* enum cw_posts_counted */
	__u32 n_connections; /* SLICE: sending ones whose operations are counted one by one */
	__u32 reserved;
};

enum cw_post_operations_flags {
	CW_POST_OPERATIONS_FAULT = 1 << 0, /* a request, or NCCL's count, could not be read */
};

/*
 * The posts of one NCCL connection in a slice, for its whole operations. NCCL counts the steps of a
 * connection (cw_nccl_steps), and the program reads that count at each post. The last step of each
 * operation here is after `from_steps` and up to `to_steps`. Operations at the edges of the slice
 * are left out.
 */
struct cw_post_operations {
	struct cw_header header; /* end of the slice */
	__u64 begin_ns;
	__u64 connection;
	__u64 from_steps;
	__u64 to_steps; /* equal: no operation lies in the slice as a whole */
	__u64 bytes;	/* SEND and WRITE */
	__u64 posts;
	__u64 operations; /* with posts */
	__u64 edge_bytes; /* of the operations that are left out */
	__u32 tgid;
	__u32 flags; /* enum cw_post_operations_flags */
};

CW_ASSERT_SIZE(cw_post_slice, 56);
CW_ASSERT_SIZE(cw_post_operations, 88);
CW_ASSERT_SIZE(cw_post_counters, 880);
CW_ASSERT_SIZE(cw_verbs_key, 24);
CW_ASSERT_SIZE(cw_qp_post, 920);
CW_ASSERT_SIZE(cw_verbs_qp, 128);

#endif
