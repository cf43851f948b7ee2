/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The records of dropped records and of late samples. */
#ifndef COLLWIRE_LOSS_RECORDS_H
#define COLLWIRE_LOSS_RECORDS_H

#include "collwire/record.h"

enum cw_loss_class {
	CW_LOSS_QP_EVENT = 0,	/* ring buffer full: a QP event was dropped */
	CW_LOSS_PORT_EVENT = 1, /* ring buffer full: a port, device or carrier event was dropped */
	CW_LOSS_VERBS_QP = 2,	/* ring buffer full: posts that cannot be tied to a QP */
	CW_LOSS_QP_TABLE = 3,	/* table of live QPs full: frames or states not counted */
	CW_LOSS_WIRE_TABLE = 4, /* wire counters full: frames not counted */
	CW_LOSS_WIRE_FRAME = 5, /* a frame whose headers or QP could not be read */
	CW_LOSS_POST_TABLE = 6, /* post counters full: posts not counted */
	CW_LOSS_POST_TRUNCATED = 7, /* posts with more work requests than are walked */
	CW_LOSS_POST_FAULT = 8,	    /* posts with work requests in unmapped memory */
	CW_LOSS_CALL_TABLE = 9,	    /* too many calls in flight: one was not followed */
	CW_LOSS_PROBE_MISSED = 10, /* the kernel skipped a probe (recursion, kretprobe instances) */
	CW_LOSS_RECORD_WRITE = 11, /* records that could not be written (disk full) */
	CW_LOSS_UD_PEER_TABLE = 12, /* destinations of UD QPs: in the QP's sum, not under a peer */
	CW_LOSS_NCCL_COMM = 13,	    /* ring buffer or table full: a communicator or its end */
	CW_LOSS_NCCL_CALL = 14,	    /* ring buffer full or unread: dropped calls */
	CW_LOSS_NCCL_LAUNCH = 15,   /* ring buffer full, or two at once: dropped launches */
	CW_LOSS_NCCL_SHAPE = 16,    /* ring buffer or table full: dropped shapes */
	CW_LOSS_NCCL_CONNECTION = 17,	 /* ring buffer full: dropped connections */
	CW_LOSS_NCCL_OPS_TRUNCATED = 18, /* launches with more operations than are walked */
	CW_LOSS_NCCL_FAULT = 19,	 /* launches whose memory could not be read */
	CW_LOSS_NCCL_PROGRESS = 20,	 /* dropped starts and completions of operations */
	CW_LOSS_NCCL_SOCKET = 21,	 /* ring buffer full or unread: dropped sockets */
	CW_LOSS_RING_UNREAD = 22,  /* at the end: in a ring buffer, after an unfinished record */
	CW_LOSS_NCCL_WARNING = 23, /* ring buffer full, or too many: dropped warnings */
	CW_LOSS_GPU = 24,	 /* ring buffer full, or unreadable: dropped items of a hand-over */
	CW_LOSS_GPU_BATCH = 25,	 /* hand-overs of an unknown form: none of their items is read */
	CW_LOSS_STANDSTILL = 26, /* times that the recorder stood still and read no ring buffer */
	CW_LOSS_CLASSES = 27,
};

struct cw_loss {
	struct cw_header header; /* header.cpu: where they were dropped */
	__u32 loss_class;	 /* enum cw_loss_class */
	__u32 reserved;
	__u64 records; /* cumulative */
};

/* Some counters were not sampled for more than one and a half intervals, up to header.time_ns. */
struct cw_sample_gap {
	struct cw_header header;
	__u64 begin_ns;
};

CW_ASSERT_SIZE(cw_loss, 32);
CW_ASSERT_SIZE(cw_sample_gap, 24);

#endif
