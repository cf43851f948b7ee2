/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Rules of RoCE and InfiniBand for the BPF programs and the recorder. Pure: tested in user space.
 */
#ifndef COLLWIRE_ROCE_H
#define COLLWIRE_ROCE_H

#include "collwire/wire_records.h"

#define CW_PSN_MASK 0xffffff

/*
 * Signed distance from PSN b to PSN a in the 24-bit circle: > 0 when a is the later one.
 * InfiniBand Architecture Specification 9.7.1.
 */
static inline __s32 cw_psn_distance(__u32 a, __u32 b)
{
	return (__s32)((a - b) << 8) >> 8;
}

static inline __u32 cw_psn_add(__u32 psn, __u32 n)
{
	return (psn + n) & CW_PSN_MASK;
}

/* include/rdma/ib_verbs.h: rdma_calc_flow_label, rdma_flow_label_to_udp_sport. Symmetric in the two
 * QP numbers. */
static inline __u16 cw_udp_sport(__u32 flow_label, __u32 local_qpn, __u32 remote_qpn)
{
	__u32 label = flow_label & 0xfffff;

	if (!label) {
		__u64 v = (__u64)local_qpn * remote_qpn;

		v ^= v >> 20;
		v ^= v >> 40;
		label = (__u32)(v & 0xfffff);
	}
	return (__u16)(((label & 0x3fff) ^ ((label & 0xfc000) >> 14)) | 0xc000);
}

/* Base Transport Header, InfiniBand Architecture Specification 9.2 and 9.4 */

#define CW_BTH_BYTES	  12
#define CW_ICRC_BYTES	  4
#define CW_ETHERNET_BYTES 14
#define CW_VLAN_BYTES	  4
#define CW_IPV4_BYTES	  20
#define CW_IPV6_BYTES	  40
#define CW_UDP_BYTES	  8

/* Upper three bits of the opcode: the transport. Lower five: the operation. */
enum {
	CW_BTH_RC = 0x00,
	CW_BTH_UC = 0x20,
	CW_BTH_UD = 0x60,
	CW_BTH_CNP = 0x80,
	CW_BTH_XRC = 0xa0,

	CW_BTH_WRITE_FIRST = 0x06,
	CW_BTH_WRITE_LAST_IMM = 0x09,
	CW_BTH_WRITE_ONLY = 0x0a,
	CW_BTH_WRITE_ONLY_IMM = 0x0b,
	CW_BTH_READ_REQUEST = 0x0c,
	CW_BTH_READ_RESPONSE_FIRST = 0x0d,
	CW_BTH_READ_RESPONSE_MIDDLE = 0x0e,
	CW_BTH_READ_RESPONSE_LAST = 0x0f,
	CW_BTH_READ_RESPONSE_ONLY = 0x10,
	CW_BTH_ACK = 0x11,
	CW_BTH_ATOMIC_ACK = 0x12,
	CW_BTH_COMPARE_SWAP = 0x13,
	CW_BTH_FETCH_ADD = 0x14,
	CW_BTH_FLUSH = 0x1c,
	CW_BTH_ATOMIC_WRITE = 0x1d,
};

static inline __u32 cw_bth_transport(__u8 opcode)
{
	return opcode & 0xe0;
}

static inline __u32 cw_bth_operation(__u8 opcode)
{
	return opcode & 0x1f;
}

/* Only these transports acknowledge and retransmit. */
static inline int cw_bth_is_reliable(__u8 opcode)
{
	return cw_bth_transport(opcode) == CW_BTH_RC || cw_bth_transport(opcode) == CW_BTH_XRC;
}

/* The class of a frame that is neither a duplicate nor out of order. */
static inline enum cw_wire_class cw_bth_class(__u8 opcode)
{
	__u32 operation = cw_bth_operation(opcode);

	if (cw_bth_transport(opcode) == CW_BTH_CNP)
		return CW_WIRE_ACK;
	if (!cw_bth_is_reliable(opcode))
		return CW_WIRE_REQUEST;
	if (operation == CW_BTH_ACK)
		return CW_WIRE_ACK;
	if ((operation >= CW_BTH_READ_RESPONSE_FIRST && operation <= CW_BTH_READ_RESPONSE_ONLY) ||
	    operation == CW_BTH_ATOMIC_ACK)
		return CW_WIRE_RESPONSE;
	return CW_WIRE_REQUEST;
}

/* Whether the request is answered by frames of class CW_WIRE_RESPONSE. */
static inline int cw_bth_asks_response(__u8 opcode)
{
	__u32 operation = cw_bth_operation(opcode);

	return cw_bth_is_reliable(opcode) &&
	       (operation == CW_BTH_READ_REQUEST || operation == CW_BTH_COMPARE_SWAP ||
		operation == CW_BTH_FETCH_ADD || operation == CW_BTH_FLUSH ||
		operation == CW_BTH_ATOMIC_WRITE);
}

/* The last frame of a response: the next one answers the next request. */
static inline int cw_bth_ends_response(__u8 opcode)
{
	__u32 operation = cw_bth_operation(opcode);

	return operation == CW_BTH_READ_RESPONSE_LAST || operation == CW_BTH_READ_RESPONSE_ONLY ||
	       operation == CW_BTH_ATOMIC_ACK;
}

/*
 * Bytes of the extension headers after the BTH; -1: an unknown opcode. The original value in an
 * atomic's acknowledge is not a header: it is the 8 bytes of payload.
 */
static inline __s32 cw_bth_extension_bytes(__u8 opcode)
{
	/* RETH 16, ImmDt 4, IETH 4, AETH 4, AtomicETH 28, FETH 4 */
	static const __s8 of_operation[32] = {
		0, 0, 0, 4,  0,	 4,  16, 0, 0,	4,  16, 20, 16, 4,  0,	4,
		4, 4, 4, 28, 28, -1, 4,	 4, -1, -1, -1, -1, 20, 16, -1, -1,
	};
	__s32 bytes = of_operation[cw_bth_operation(opcode)];

	switch (cw_bth_transport(opcode)) {
	case CW_BTH_RC:
		return bytes;
	case CW_BTH_UC:
		/* SEND and WRITE only */
		return cw_bth_operation(opcode) <= CW_BTH_WRITE_ONLY_IMM ? bytes : -1;
	case CW_BTH_UD:
		/* SEND_ONLY, with or without immediate data; DETH 8 */
		return cw_bth_operation(opcode) == 0x04 || cw_bth_operation(opcode) == 0x05
			       ? bytes + 8
			       : -1;
	case CW_BTH_XRC:
		/* XRCETH 4, on requests */
		if (bytes < 0)
			return -1;
		return cw_bth_class(opcode) == CW_WIRE_REQUEST ? bytes + 4 : bytes;
	default:
		return -1;
	}
}

/*
 * Payload of a frame whose length from BTH to ICRC, both included, is `transport_bytes`. -1: an
 * impossible frame. `flags` is the second byte of the BTH, which holds the pad count.
 */
static inline __s32 cw_bth_payload_bytes(__u8 opcode, __u8 flags, __u32 transport_bytes)
{
	__s32 extension = cw_bth_extension_bytes(opcode);
	__s32 payload;

	if (extension < 0)
		return -1;
	payload = (__s32)transport_bytes - CW_BTH_BYTES - extension - ((flags >> 4) & 3) -
		  CW_ICRC_BYTES;
	return payload < 0 ? -1 : payload;
}

/* PSNs that a READ of that many bytes uses: those of its responses. */
static inline __u32 cw_read_psns(__u32 length_bytes, __u32 mtu_bytes)
{
	if (!length_bytes || !mtu_bytes)
		return 1;
	return (__u32)(((__u64)length_bytes + mtu_bytes - 1) / mtu_bytes);
}

/* enum ib_mtu */
static inline __u32 cw_mtu_bytes(__u32 ib_mtu)
{
	return ib_mtu >= 1 && ib_mtu <= 5 ? 128u << ib_mtu : 0;
}

#endif
