/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Values of the BPF maps that the recorder reads as well. Never in a capture. */
#ifndef COLLWIRE_TABLES_H
#define COLLWIRE_TABLES_H

#include "collwire/loss_records.h"
#include "collwire/qp_records.h"
#include "collwire/record.h"

struct cw_losses {
	__u64 records[CW_LOSS_CLASSES];
};

/* The gate: whether programs count and emit. */
enum cw_hold {
	CW_NOT_HELD = 0,
	CW_HELD = 1, /* the recording has not started */
	CW_OVER = 2, /* the recording has ended */
};

struct cw_live_qp {
	struct cw_qp_key key;
	__u64 start_boottime_ns; /* of the owner's thread group leader */
	__u32 tgid;		 /* of the owner, 0: kernel */
	__u32 type;		 /* enum ib_qp_type */
	__u32 flags;		 /* enum cw_qp_flags */
	__u8 state;		 /* last known enum ib_qp_state, 0xff: not known */
	__u8 path_mtu;		 /* enum ib_mtu, 0: not known */
	__u8 has_rq_psn;	 /* rq_psn is from a recorded modify */
	__u8 emitted;		 /* pre-existing, and its query was recorded */
	__u32 rq_psn;
	__u32 resets; /* times it went back to RESET: packet numbers restart */
};

struct cw_epoch_key {
	__u32 tgid;
	__u32 qpn;
};

/* An open TCP socket of an NCCL connection. */
struct cw_open_socket {
	__u64 inode;
	__u32 tgid;
	__u32 fd;
	__u32 ports;	 /* local and remote: tells a later socket at the same address apart */
	__u32 connected; /* by connect(), not by accept() */
};

/*
 * A file that was mapped. Its inode number is reused after its deletion, and on some file systems
 * (snapshots of btrfs) several files have one.
 */
struct cw_file_key {
	__u64 inode;
	__u64 device;
	__u64 address; /* of struct inode */
	__u64 size;
	__u64 generation;
};

/* Frames in flight to one destination of a datagram queue pair. */
struct cw_ud_peer_key {
	struct cw_qp_key qp;
	__u8 dgid[16];
	__u32 dest_qpn;
	__u32 reserved;
};

struct cw_ud_peer_counters {
	__u64 frames;
	__u64 wire_bytes;
	__u64 payload_bytes;
};

/* How many READ and ATOMIC requests of one queue pair can wait for their response: rxe's limit,
 * RXE_MAX_QP_RD_ATOM. */
#define CW_MAX_READS 128

/* The position of a queue pair in its sequences of packet numbers, see wire_sequence.h. */
struct cw_wire_sequences {
	__u32 resets;	       /* of the queue pair when this entry was made */
	__u32 tx_request_next; /* the first PSN that was not sent yet */
	__u32 tx_response_next;
	__u32 rx_request_next;	/* the PSN that the responder takes next */
	__u32 rx_response_next; /* the PSN that goes on with a response of several frames */
	__u32 rx_response_end;	/* after the last PSN that the requester took */
	__u32 rx_request_ahead; /* frames beyond the next one since one was taken */
	__u32 rx_response_ahead;
	__u8 tx_request_known;
	__u8 tx_response_known;
	__u8 rx_request_known;
	__u8 rx_response_open; /* rx_response_next is valid */
	__u8 rx_response_end_known;
	__u8 reserved[3];
	__u32 read_tail; /* of the ring: the oldest request that is not answered yet */
	__u32 read_head;
	__u32 reads[CW_MAX_READS]; /* the first PSN of each READ and ATOMIC sent */
};

/*
 * Offsets of the rdma_rxe fields that are read, from the module's own BTF; its types are in no
 * other BTF. -1: not in this version.
 */
struct cw_rxe_layout {
	__s32 qp_ibqp;
	__s32 qp_req_state; /* enum rxe_qp_state, until Linux 6.4 */
	__s32 qp_resp_state;
	__s32 qp_attr_state; /* enum ib_qp_state, since then */
	__s32 qp_resp_psn;
	__s32 qp_comp_psn;
	__s32 qp_req_pkts_len;
	__s32 pkt_qp;
	__s32 pkt_hdr;
	__s32 pkt_paylen;
	__s32 pkt_opcode;
	__s32 pkt_mask;
	__u32 loopback_mask; /* in it: the frame goes to the same node; 0: not known */
	__u64 tx_destructor; /* address of rxe_skb_tx_dtor, that all its frames carry; 0: not known
			      */
};

/* A call of a kernel function, see calls.h. */
struct cw_call_key {
	__u64 thread;
	__u64 frame; /* fentry: an argument that no two calls in flight share; kprobe: where the
			return address lies */
};

/* Kernel functions with sibling programs, see twice.h. Those of frames last. */
enum cw_twice_function {
	CW_TWICE_RESTRACK_ADD,
	CW_TWICE_DESTROY,
	CW_TWICE_DESTROY_EXIT,
	CW_TWICE_USER_MODIFY,
	CW_TWICE_KERNEL_MODIFY,
	CW_TWICE_QUERY,
	CW_TWICE_QP_EVENT,
	CW_TWICE_XMIT,
	CW_TWICE_XMIT_EXIT,
	CW_TWICE_REQUEST,
	CW_TWICE_RESPONSE,
	CW_TWICE_QUEUE,
	CW_TWICE_FUNCTIONS,
};

/* A call that one of two siblings has handled. */
struct cw_mark_key {
	struct cw_call_key call;
	__u32 function; /* enum cw_twice_function */
	__u32 reserved;
};

struct cw_mark {
	__u64 time_ns;
	__u32 chance; /* of the program that handled it */
	__u32 reserved;
};

struct cw_twice {
	__u64 first_ran; /* calls that the first sibling saw */
	__u64 handled;	 /* calls that either handled, or that both skip */
};

CW_ASSERT_SIZE(cw_live_qp, 48);
CW_ASSERT_SIZE(cw_ud_peer_key, 40);

#endif
