/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The public structs and values of libibverbs that the probes on posted work requests read, and the
 * arithmetic that turns a work request into counts. For the BPF programs and for C++ alike. Source:
 * libibverbs/verbs.h, the same on x86-64 in rdma-core 15 to 65.
 */
#ifndef COLLWIRE_VERBS_H
#define COLLWIRE_VERBS_H

#include "collwire/post_records.h"
#include "collwire/record.h"

#define CW_IBV_CONTEXT_DEVICE	  0
#define CW_IBV_CONTEXT_POST_SEND  208
#define CW_IBV_CONTEXT_ABI_COMPAT 320 /* ~0: an extended context, as all of today's are */
#define CW_IBV_DEVICE_NAME	  24  /* char[64] */

/* The beginning of its file's name. */
#define CW_LIBIBVERBS "libibverbs.so"

/* The head of struct ibv_qp. */
struct cw_ibv_qp {
	__u64 context;
	__u64 qp_context;
	__u64 pd;
	__u64 send_cq;
	__u64 recv_cq;
	__u64 srq;
	__u32 handle;
	__u32 qp_num;
	__u32 state;
	__u32 qp_type;
};

/* struct ibv_send_wr from `next` to `send_flags`. */
#define CW_IBV_SEND_WR_NEXT 8
struct cw_ibv_send_wr {
	__u64 next;
	__u64 sg_list;
	__s32 num_sge;
	__u32 opcode;
	__u32 send_flags;
	__u32 imm_data;
};

struct cw_ibv_sge {
	__u64 addr;
	__u32 length;
	__u32 lkey;
};

/* struct ibv_data_buf, of ibv_wr_set_inline_data_list */
struct cw_ibv_data_buf {
	__u64 addr;
	__u64 length;
};

/* The function pointers of struct ibv_qp_ex. */
#define CW_IBV_QP_EX_FIRST    184
#define CW_IBV_QP_EX_START    320
#define CW_IBV_QP_EX_END      360
#define CW_IBV_QP_EX_POINTERS 22

/* The functions with probes; one BPF program for each. */
enum cw_verbs_call {
	CW_CALL_NONE = 0,
	CW_CALL_POST_SEND,
	CW_CALL_WR_ATOMIC, /* compare and swap, fetch and add */
	CW_CALL_WR_LOCAL,  /* bind_mw, local_inv */
	CW_CALL_WR_READ,
	CW_CALL_WR_WRITE,
	CW_CALL_WR_WRITE_IMM,
	CW_CALL_WR_SEND,
	CW_CALL_WR_SEND_IMM,
	CW_CALL_WR_SEND_INV,
	CW_CALL_WR_SEND_TSO,
	CW_CALL_WR_ATOMIC_WRITE,
	CW_CALL_WR_FLUSH,
	CW_CALL_SET_INLINE,
	CW_CALL_SET_INLINE_LIST,
	CW_CALL_SET_SGE,
	CW_CALL_SET_SGE_LIST,
	CW_CALL_WR_COMPLETE,
	CW_CALL_WR_ABORT,
	CW_CALLS,
};

/*
 * The call of a function pointer in struct ibv_qp_ex. NONE for functions without bytes: the setters
 * of addresses, and wr_start: a batch ends with complete or abort, so another trap would add
 * nothing.
 */
CW_INLINE __u32 cw_call_of_qp_ex_offset(__u64 offset_bytes)
{
	switch (offset_bytes) {
	case 184:
	case 192:
		return CW_CALL_WR_ATOMIC;
	case 200:
	case 208:
		return CW_CALL_WR_LOCAL;
	case 216:
		return CW_CALL_WR_READ;
	case 224:
		return CW_CALL_WR_WRITE;
	case 232:
		return CW_CALL_WR_WRITE_IMM;
	case 240:
		return CW_CALL_WR_SEND;
	case 248:
		return CW_CALL_WR_SEND_IMM;
	case 256:
		return CW_CALL_WR_SEND_INV;
	case 264:
		return CW_CALL_WR_SEND_TSO;
	case 288:
		return CW_CALL_SET_INLINE;
	case 296:
		return CW_CALL_SET_INLINE_LIST;
	case 304:
		return CW_CALL_SET_SGE;
	case 312:
		return CW_CALL_SET_SGE_LIST;
	case 328:
		return CW_CALL_WR_COMPLETE;
	case 336:
		return CW_CALL_WR_ABORT;
	case 344:
		return CW_CALL_WR_ATOMIC_WRITE;
	case 352:
		return CW_CALL_WR_FLUSH;
	default:
		return CW_CALL_NONE;
	}
}

/*
 * enum ibv_wr_opcode -> enum cw_post_class, 4 bits each, from WRITE 0 to ATOMIC_WRITE 15.
 * Arithmetic, here and below, where a switch or a condition would read better: in a loop the
 * verifier follows each way out of a branch on its own.
 */
#define CW_OPCODE_CLASSES                                                                          \
	((__u64)CW_POST_WRITE | (__u64)CW_POST_WRITE_IMM << 4 | (__u64)CW_POST_SEND << 8 |         \
	 (__u64)CW_POST_SEND_IMM << 12 | (__u64)CW_POST_READ << 16 | (__u64)CW_POST_ATOMIC << 20 | \
	 (__u64)CW_POST_ATOMIC << 24 | (__u64)CW_POST_LOCAL << 28 | (__u64)CW_POST_LOCAL << 32 |   \
	 (__u64)CW_POST_SEND_INV << 36 | (__u64)CW_POST_OTHER << 40 | (__u64)CW_POST_OTHER << 44 | \
	 (__u64)CW_POST_OTHER << 48 | (__u64)CW_POST_OTHER << 52 | (__u64)CW_POST_FLUSH << 56 |    \
	 (__u64)CW_POST_ATOMIC_WRITE << 60)

CW_INLINE __u32 cw_post_class_of_opcode(__u32 opcode)
{
	if (opcode > 15)
		return CW_POST_OTHER;
	return (__u32)(CW_OPCODE_CLASSES >> (opcode * 4)) & 15;
}

#define CW_ATOMIC_BYTES 8

/*
 * Whether its gather list is transferred. FLUSH and local requests carry nothing, atomics always 8.
 */
CW_INLINE int cw_class_has_payload(__u32 post_class)
{
	return post_class != CW_POST_LOCAL && post_class != CW_POST_FLUSH &&
	       post_class != CW_POST_ATOMIC;
}

CW_INLINE __u64 cw_payload_bytes(__u32 post_class, __u64 length_bytes)
{
	if (post_class == CW_POST_ATOMIC)
		return CW_ATOMIC_BYTES;
	return cw_class_has_payload(post_class) ? length_bytes : 0;
}

/* Only the last packet of a message is padded: path MTUs are multiples of 4. */
CW_INLINE __u64 cw_pad_bytes(__u64 length_bytes)
{
	return (4 - (length_bytes & 3)) & 3;
}

/* 1 for 0, 0 for any other number below 2^63 */
CW_INLINE __u64 cw_is_zero(__u64 n)
{
	return (n - 1) >> 63;
}

/* Packets of a message at path MTU 256 << mtu_class; a message without bytes is one, too. */
CW_INLINE __u64 cw_packets(__u64 length_bytes, __u32 mtu_class)
{
	__u64 n = (length_bytes + (256ULL << mtu_class) - 1) >> (8 + mtu_class);

	return n + cw_is_zero(n);
}

/* The sums of the work requests of one class. */
struct cw_post_sum {
	struct cw_post_class_counters counters;
	__u64 multi_packet[CW_MTU_CLASSES]; /* READs longer than one path MTU */
};

/* Adds a work request of this class and gather length. */
CW_INLINE void cw_count_wr(struct cw_post_sum *sum, __u32 post_class, __u64 length_bytes)
{
	__u64 bytes = cw_payload_bytes(post_class, length_bytes);

	sum->counters.wrs += 1;
	sum->counters.zero_length_wrs += cw_is_zero(bytes);
	sum->counters.bytes += bytes;
	sum->counters.pad_bytes += cw_pad_bytes(bytes);
	if (post_class == CW_POST_LOCAL)
		return;
	sum->counters.packets[0] += cw_packets(bytes, 0);
	sum->counters.packets[1] += cw_packets(bytes, 1);
	sum->counters.packets[2] += cw_packets(bytes, 2);
	sum->counters.packets[3] += cw_packets(bytes, 3);
	sum->counters.packets[4] += cw_packets(bytes, 4);
	if (post_class != CW_POST_READ)
		return;
	sum->multi_packet[0] += 1 - cw_is_zero(cw_packets(bytes, 0) - 1);
	sum->multi_packet[1] += 1 - cw_is_zero(cw_packets(bytes, 1) - 1);
	sum->multi_packet[2] += 1 - cw_is_zero(cw_packets(bytes, 2) - 1);
	sum->multi_packet[3] += 1 - cw_is_zero(cw_packets(bytes, 3) - 1);
	sum->multi_packet[4] += 1 - cw_is_zero(cw_packets(bytes, 4) - 1);
}

/*
 * How the BPF map keeps the counters: an entry for each queue pair, class of request and thread
 * that posts. Most queue pairs have one thread and one or two classes. No two threads ever write
 * one entry, so plain additions are exact: entries per CPU would need atomic ones, because a thread
 * can be preempted in a uprobe's program, and memory for every CPU of the machine.
 */
struct cw_slot_key {
	struct cw_verbs_key qp;
	__u32 tid;
	__u32 post_class;
};

struct cw_post_slot {
	__u64 first_ns;
	__u64 posts;
	__u64 truncated_posts;
	__u64 fault_posts;
	__u64 aborted_wrs;
	struct cw_post_sum sum;
};

/* Work requests of the ibv_wr_* calls between start and complete. */
struct cw_batch_key {
	__u64 qp_address;
	__u32 tgid;
	__u32 reserved;
};

struct cw_batch {
	__u64 length_bytes; /* of the request under construction */
	__u32 post_class;   /* of the same request */
	__u32 building;	    /* a request is under construction */
	__u32 used_classes; /* bit set of classes that hold something */
	__u32 faults;	    /* a list could not be read, or was too long */
	__u32 truncated;
	__u32 reserved;
	struct cw_post_sum classes[CW_POST_CLASSES];
};

/* A queue pair, or a connection, of NCCL, by its address in a process. */
struct cw_watched_key {
	__u64 address;
	__u32 tgid;
	__u32 reserved;
};

/* The connection whose data a queue pair carries. */
struct cw_watched_qp {
	__u64 connection;
	__u64 steps_at; /* address of the connection's step count */
};

/*
 * The posts of a connection by operation. One thread posts for a connection, and it is the one that
 * counts its steps: the count names the end of the operation that the post belongs to.
 */
struct cw_watched_sums {
	__u64 steps;	  /* at the last post */
	__u64 from_steps; /* end of the operation that the slice started in */
	__u64 to_steps;	  /* end of the last whole operation */
	__u64 bytes;	  /* of whole operations */
	__u64 posts;
	__u64 operations;
	__u64 edge_bytes;
	__u64 open_bytes; /* of the operation that ends at `steps` */
	__u64 open_posts;
	__u64 changes; /* of `steps`; the first post counts as one */
	__u64 faults;
};

/* Classes whose payload the sender transfers: bit set of SEND ... WRITE_IMM, ATOMIC_WRITE. */
#define CW_SENT_CLASSES 0x9fULL

/* The bytes that a sum of this class adds to a connection. */
CW_INLINE __u64 cw_sent_bytes(__u32 post_class, __u64 bytes)
{
	return bytes * ((CW_SENT_CLASSES >> (post_class & 15)) & 1);
}

/* A post of `bytes` while NCCL's count of steps was `steps`. */
CW_INLINE void cw_count_watched(struct cw_watched_sums *sums, __u64 steps, __u64 bytes)
{
	if (!sums->changes) {
		sums->changes = 1;
		sums->steps = steps;
	} else if (steps != sums->steps) {
		if (sums->changes == 1) {
			/* It had started before. */
			sums->edge_bytes += sums->open_bytes;
			sums->from_steps = sums->steps;
		} else {
			sums->bytes += sums->open_bytes;
			sums->posts += sums->open_posts;
			sums->operations += 1;
		}
		sums->to_steps = sums->steps;
		sums->changes += 1;
		sums->steps = steps;
		sums->open_bytes = 0;
		sums->open_posts = 0;
	}
	sums->open_bytes += bytes;
	sums->open_posts += 1;
}

CW_ASSERT_SIZE(cw_watched_key, 16);
CW_ASSERT_SIZE(cw_watched_qp, 16);
CW_ASSERT_SIZE(cw_watched_sums, 88);
CW_ASSERT_SIZE(cw_ibv_qp, 64);
CW_ASSERT_SIZE(cw_ibv_send_wr, 32);
CW_ASSERT_SIZE(cw_ibv_sge, 16);
CW_ASSERT_SIZE(cw_slot_key, 32);
CW_ASSERT_SIZE(cw_post_slot, 152);
CW_ASSERT_SIZE(cw_batch_key, 16);
CW_ASSERT_SIZE(cw_batch, 1264);

#endif
