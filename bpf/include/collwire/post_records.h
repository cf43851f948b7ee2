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

CW_ASSERT_SIZE(cw_post_counters, 880);
CW_ASSERT_SIZE(cw_verbs_key, 24);
CW_ASSERT_SIZE(cw_qp_post, 920);
CW_ASSERT_SIZE(cw_verbs_qp, 128);

#endif
