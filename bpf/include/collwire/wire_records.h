/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The records of frames, counted per queue pair of a software provider. */
#ifndef COLLWIRE_WIRE_RECORDS_H
#define COLLWIRE_WIRE_RECORDS_H

#include "collwire/qp_records.h"
#include "collwire/record.h"

/*
 * Frames of a software provider, by their meaning for the QP that sends (tx) or receives (rx) them.
 */
enum cw_wire_class {
	CW_WIRE_REQUEST = 0,	/* SEND, WRITE, READ request, ATOMIC request; UD SEND */
	CW_WIRE_RESPONSE = 1,	/* READ response, ATOMIC acknowledge */
	CW_WIRE_ACK = 2,	/* ACK, NAK, RNR NAK, congestion notification */
	CW_WIRE_RETRANSMIT = 3, /* tx: a request or response whose PSN went out before; rx: a
				   duplicate or out-of-order frame */
	CW_WIRE_CLASSES = 4,
};

struct cw_wire_direction {
	__u64 frames[CW_WIRE_CLASSES];
	__u64 wire_bytes[CW_WIRE_CLASSES];    /* Ethernet header to ICRC */
	__u64 payload_bytes[CW_WIRE_CLASSES]; /* atomics: 8 in the response, 0 in the request */
	__u64 first_ns; /* the first counted frame: its time, PSN and opcode */
	__u64 last_ns;
	__u32 first_psn;
	__u8 first_opcode;
	__u8 reserved[3];
};

struct cw_wire_counters {
	struct cw_wire_direction tx;
	struct cw_wire_direction rx;
	/*
	 * Refused by the driver, and not in tx. Includes frames to the same node that were dropped
	 * before the driver; other such drops are not visible.
	 */
	__u64 tx_failed_frames;
};

struct cw_qp_wire {
	struct cw_header header;
	struct cw_qp_key key;
	struct cw_wire_counters counters; /* cumulative over the life of the QP */
};

/* One destination of a UD queue pair. */
struct cw_ud_peer {
	struct cw_header header;
	struct cw_qp_key key;
	__u8 dgid[16]; /* IPv4 as ::ffff:a.b.c.d */
	__u32 dest_qpn;
	__u32 reserved;
	__u64 tx_frames;
	__u64 tx_wire_bytes;
	__u64 tx_payload_bytes;
};

CW_ASSERT_SIZE(cw_wire_direction, 120);
CW_ASSERT_SIZE(cw_qp_wire, 280);
CW_ASSERT_SIZE(cw_ud_peer, 80);

#endif
