/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* One frame: rdma_rxe's data about it, and the frame's own headers. */
#ifndef COLLWIRE_RXE_FRAME_H
#define COLLWIRE_RXE_FRAME_H

#include "shared_maps.h"
#include "collwire/roce.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>

enum {
	ETH_P_IP = 0x0800,
	ETH_P_IPV6 = 0x86DD,
	ETH_P_8021Q = 0x8100,
	IFF_SLAVE = 1 << 11,
	IFF_802_1Q_VLAN = 1 << 0, /* this and the next two in priv_flags */
	IFF_BRIDGE_PORT = 1 << 9,
	IFF_TEAM_PORT = 1 << 13,
	ROCE_V2_PORT = 4791,
};

const volatile struct cw_rxe_layout layout = {};

#define READ_AT(type, base, offset)                                                                \
	({                                                                                         \
		type v__ = 0;                                                                      \
		bpf_probe_read_kernel(&v__, sizeof(v__), (const void *)(base) + (offset));         \
		v__;                                                                               \
	})

struct frame {
	__u32 wire_bytes;
	__u32 ip_bytes;
	__u32 transport_bytes; /* BTH to ICRC */
	__u32 payload_bytes;
	__u32 psn;
	__u32 dest_qpn;
	__u32 n_psns;
	__u8 opcode;
	__u8 ipv6;
	__u8 bth[CW_BTH_BYTES];
};

/* The addresses of a frame's headers. */
struct place {
	const void *ip;	 /* NULL: not known */
	const void *bth; /* NULL: not a frame */
	__u32 transport_bytes;
};

/* A frame that leaves through a netdev, from its own headers. */
static __always_inline struct place place_on_wire(struct sk_buff *skb)
{
	const void *ip = BPF_CORE_READ(skb, head) + BPF_CORE_READ(skb, network_header);
	__u16 protocol = BPF_CORE_READ(skb, protocol);
	const void *udp = ip + (protocol == bpf_htons(ETH_P_IPV6) ? CW_IPV6_BYTES : CW_IPV4_BYTES);
	struct place place = {
		.ip = ip,
		.bth = udp + CW_UDP_BYTES,
		.transport_bytes = bpf_ntohs(READ_AT(__be16, udp, 4)) - CW_UDP_BYTES,
	};

	return place;
}

/* From rxe's packet info in the control block. */
static __always_inline struct place place_in_notes(const void *pkt)
{
	struct place place = {
		.bth = READ_AT(const void *, pkt, layout.pkt_hdr),
		.transport_bytes = READ_AT(__u16, pkt, layout.pkt_paylen),
	};
	__u8 opcode = READ_AT(__u8, pkt, layout.pkt_opcode);

	/* The header on the wire and the packet info must agree. */
	if (!place.bth || READ_AT(__u8, place.bth, 0) != opcode)
		place.bth = NULL;
	return place;
}

/* False: the layout does not fit. */
static __always_inline bool read_frame(struct frame *f, struct place place, struct sk_buff *skb,
				       const struct cw_live_qp *live)
{
	const void *hdr = place.bth;
	struct net_device *dev = BPF_CORE_READ(skb, dev);
	__u16 protocol = BPF_CORE_READ(skb, protocol);
	__s32 payload;

	if (!hdr || bpf_probe_read_kernel(f->bth, sizeof(f->bth), hdr))
		return false;
	f->opcode = f->bth[0];
	f->psn = f->bth[9] << 16 | f->bth[10] << 8 | f->bth[11];
	f->dest_qpn = f->bth[5] << 16 | f->bth[6] << 8 | f->bth[7];
	f->transport_bytes = place.transport_bytes;
	f->ipv6 = protocol == bpf_htons(ETH_P_IPV6);
	if (!f->ipv6 && protocol != bpf_htons(ETH_P_IP))
		return false;
	f->ip_bytes = (f->ipv6 ? CW_IPV6_BYTES : CW_IPV4_BYTES) + CW_UDP_BYTES + f->transport_bytes;
	f->wire_bytes = CW_ETHERNET_BYTES + f->ip_bytes;
	/* A GID of a VLAN interface: its frames have a tag on the wire. */
	if (dev && READ_INTEGER(dev, priv_flags) & IFF_802_1Q_VLAN)
		f->wire_bytes += CW_VLAN_BYTES;
	payload = cw_bth_payload_bytes(f->opcode, f->bth[1], f->transport_bytes);
	if (payload < 0) {
		/* An unknown opcode: the frame counts, its payload cannot. */
		count_loss(CW_LOSS_WIRE_FRAME);
		payload = 0;
	}
	f->payload_bytes = payload;
	f->n_psns = 1;
	if (cw_bth_is_reliable(f->opcode) && cw_bth_operation(f->opcode) == CW_BTH_READ_REQUEST) {
		/* RETH: address 8, key 4, length 4 */
		__u32 length = bpf_ntohl(READ_AT(__u32, hdr, CW_BTH_BYTES + 12));
		__u32 mtu = cw_mtu_bytes(live->path_mtu);

		if (!mtu)
			count_loss(CW_LOSS_WIRE_FRAME);
		f->n_psns = cw_read_psns(length, mtu);
	}
	return true;
}

#endif
