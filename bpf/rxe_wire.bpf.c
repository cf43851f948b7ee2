/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Every frame of rdma_rxe, per queue pair: where it is handed to the network, and where a received
 * one is handed to a queue pair. docs/sources/rxe_wire.md says what each probe sits on, what it
 * costs and what it misses.
 */
#include "qp_table.h"
#include "calls.h"
#include "collwire/wire_sequence.h"
#include <bpf/bpf_endian.h>

enum {
	ETH_P_IP = 0x0800,
	ETH_P_IPV6 = 0x86DD,
	IFF_802_1Q_VLAN = 1 << 0,
	RXE_QP_BYTES_AT_MOST = 16384,
	QP_STATE_READY = 2, /* enum rxe_qp_state, the same in every version that has it */
};

const volatile struct cw_rxe_layout layout = {};

/* Frames whose own header contradicts what we took for their packet structure: then the layout is
 * wrong and nothing is counted. */
__u64 layout_mismatches = 0;
__u64 layout_matches = 0;
/* Monotonic time from which on every frame passes our probes: a queue pair made later has no
 * history that we missed. */
__u64 complete_since_ns = 0;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct cw_qp_key);
	__type(value, struct cw_wire_counters);
} wire SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct cw_qp_key);
	__type(value, struct cw_wire_sequences);
} wire_sequences SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct cw_ud_peer_key);
	__type(value, struct cw_ud_peer_counters);
} ud_peers SEC(".maps");

/* One frame on its way through rxe_xmit_packet or rxe_send. */
struct tx_call {
	struct cw_qp_key key;
	__u32 wire_bytes;
	__u32 payload_bytes;
	__u32 psn;
	__u32 dest_qpn;
	__u8 opcode;
	__u8 frame_class;
	__u8 datagram;
	__u8 never_sent; /* the kernel is about to drop it and to say that all is well */
	__u32 reserved;
	__u8 dgid[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct call_key);
	__type(value, struct tx_call);
} tx_calls SEC(".maps");

/* Zeroes to insert from: values that are too big for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cw_wire_counters);
} zero_counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cw_wire_sequences);
} zero_sequences SEC(".maps");

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

/* Where a frame's BTH lies and how long it is from there, by rxe's notes on it. */
struct place {
	const void *bth;
	__u32 transport_bytes;
};

static __always_inline struct place place_in_notes(const void *pkt)
{
	struct place place = {
		.bth = READ_AT(const void *, pkt, layout.pkt_hdr),
		.transport_bytes = READ_AT(__u16, pkt, layout.pkt_paylen),
	};
	__u8 opcode = READ_AT(__u8, pkt, layout.pkt_opcode);

	/* The header on the wire and the notes must agree. */
	if (!place.bth || READ_AT(__u8, place.bth, 0) != opcode)
		place.bth = NULL;
	return place;
}

/* False: it cannot be what the layout says. */
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
	/* A GID of a VLAN interface: its frames carry the tag on the link. */
	if (dev && READ_INTEGER(dev, priv_flags) & IFF_802_1Q_VLAN)
		f->wire_bytes += CW_VLAN_BYTES;
	payload = cw_bth_payload_bytes(f->opcode, f->bth[1], f->transport_bytes);
	if (payload < 0) {
		/* An opcode of the future: the frame counts, its payload cannot. */
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

static __always_inline struct cw_live_qp *live_qp_of(const void *qp)
{
	struct ib_qp *ibqp = (void *)qp + layout.qp_ibqp;
	__u64 address = (__u64)ibqp;
	struct cw_live_qp *live = bpf_map_lookup_elem(&live_qps, &address);

	if (live)
		return live;
	if (BPF_CORE_READ(ibqp, device, ops.driver_id) != RDMA_DRIVER_RXE) {
		__sync_fetch_and_add(&layout_mismatches, 1);
		return NULL;
	}
	return find_or_add_live_qp(ibqp);
}

static __always_inline struct cw_wire_sequences *sequences_of(const struct cw_live_qp *live)
{
	struct cw_qp_key key = live->key;
	struct cw_wire_sequences *s = bpf_map_lookup_elem(&wire_sequences, &key);
	struct cw_wire_sequences *zero;
	__u32 index = 0;

	if (s && s->resets == live->resets)
		return s;
	zero = bpf_map_lookup_elem(&zero_sequences, &index);
	if (!zero)
		return NULL;
	if (bpf_map_update_elem(&wire_sequences, &key, zero, s ? BPF_ANY : BPF_NOEXIST) && s)
		return s;
	s = bpf_map_lookup_elem(&wire_sequences, &key);
	if (s)
		s->resets = live->resets;
	else
		count_loss(CW_LOSS_WIRE_TABLE);
	return s;
}

static __always_inline struct cw_wire_counters *counters_of(const struct cw_qp_key *key)
{
	struct cw_wire_counters *c = bpf_map_lookup_elem(&wire, key);
	struct cw_wire_counters *zero;
	__u32 index = 0;

	if (c)
		return c;
	zero = bpf_map_lookup_elem(&zero_counters, &index);
	if (!zero)
		return NULL;
	bpf_map_update_elem(&wire, key, zero, BPF_NOEXIST);
	c = bpf_map_lookup_elem(&wire, key);
	if (!c)
		count_loss(CW_LOSS_WIRE_TABLE);
	return c;
}

/* Atomic adds: an interrupt or another task may count for the same queue pair on this CPU in
 * between. */
static __always_inline void count_frame(struct cw_wire_direction *d, __u32 frame_class,
					__u32 wire_bytes, __u32 payload_bytes, __u32 psn,
					__u8 opcode)
{
	__u64 now = bpf_ktime_get_ns();

	if (frame_class >= CW_WIRE_CLASSES)
		return;
	__sync_fetch_and_add(&d->frames[frame_class], 1);
	__sync_fetch_and_add(&d->wire_bytes[frame_class], wire_bytes);
	if (frame_class != CW_WIRE_RETRANSMIT)
		__sync_fetch_and_add(&d->payload_bytes[frame_class], payload_bytes);
	if (!d->first_ns) {
		d->first_psn = psn;
		d->first_opcode = opcode;
		d->first_ns = now;
	}
	d->last_ns = now;
}

/* ---- out ------------------------------------------------------------------------------------ */

static __always_inline void count_ud_peer(const struct tx_call *call)
{
	struct cw_ud_peer_key key = {.qp = call->key, .dest_qpn = call->dest_qpn};
	struct cw_ud_peer_counters zero = {};
	struct cw_ud_peer_counters *c;

	__builtin_memcpy(key.dgid, call->dgid, sizeof(key.dgid));
	c = bpf_map_lookup_elem(&ud_peers, &key);
	if (!c) {
		bpf_map_update_elem(&ud_peers, &key, &zero, BPF_NOEXIST);
		c = bpf_map_lookup_elem(&ud_peers, &key);
	}
	if (!c) {
		count_loss(CW_LOSS_UD_PEER_TABLE);
		return;
	}
	__sync_fetch_and_add(&c->frames, 1);
	__sync_fetch_and_add(&c->wire_bytes, call->wire_bytes);
	__sync_fetch_and_add(&c->payload_bytes, call->payload_bytes);
}

static __always_inline void commit(const struct tx_call *call, int result)
{
	struct cw_wire_counters *c = counters_of(&call->key);
	struct cw_wire_sequences *s;

	if (!c)
		return;
	if (!result && !call->never_sent) {
		count_frame(&c->tx, call->frame_class, call->wire_bytes, call->payload_bytes,
			    call->psn, call->opcode);
		if (call->datagram)
			count_ud_peer(call);
		return;
	}
	__sync_fetch_and_add(&c->tx_failed_frames, 1);
	s = bpf_map_lookup_elem(&wire_sequences, &call->key);
	if (s && !call->never_sent)
		cw_sequence_tx_failed(s, call->opcode, call->psn, call->frame_class);
}

/* rxe_xmit_packet drops frames of a queue pair that is not ready, and returns 0. */
static __always_inline bool will_be_dropped(const void *qp, bool is_request)
{
	__u32 state;

	if (layout.qp_attr_state >= 0) {
		state = READ_AT(__u32, qp, layout.qp_attr_state);
		return is_request ? state < IB_QPS_RTS : state < IB_QPS_RTR;
	}
	if (layout.qp_req_state < 0 || layout.qp_resp_state < 0)
		return false;
	state = READ_AT(__u32, qp, is_request ? layout.qp_req_state : layout.qp_resp_state);
	return state != QP_STATE_READY;
}

/* may_drop: the kernel function that we sit on still decides whether the queue pair is ready. */
static __always_inline int count_sent(struct call_key key, const void *qp, struct cw_live_qp *live,
				      struct place place, struct sk_buff *skb, bool may_drop)
{
	struct tx_call call = {};
	struct tx_call *earlier;
	struct frame f = {};
	struct cw_wire_sequences *s;
	bool is_response;

	if (!read_frame(&f, place, skb, live) || f.ip_bytes != BPF_CORE_READ(skb, len)) {
		__sync_fetch_and_add(&layout_mismatches, 1);
		count_loss(CW_LOSS_WIRE_FRAME);
		return 0;
	}
	if (!layout_matches)
		layout_matches = 1;
	call.key = live->key;
	call.wire_bytes = f.wire_bytes;
	call.payload_bytes = f.payload_bytes;
	call.psn = f.psn;
	call.opcode = f.opcode;
	call.frame_class = cw_bth_class(f.opcode);
	is_response = call.frame_class == CW_WIRE_RESPONSE || call.frame_class == CW_WIRE_ACK;
	call.never_sent = may_drop && will_be_dropped(qp, !is_response);
	if (!call.never_sent) {
		s = sequences_of(live);
		if (s)
			call.frame_class = cw_sequence_tx(s, f.opcode, f.psn, f.n_psns);
	}
	if (cw_bth_transport(f.opcode) == CW_BTH_UD) {
		/* The IP header is the first thing in the buffer. */
		const void *ip = BPF_CORE_READ(skb, data);

		call.datagram = 1;
		call.dest_qpn = f.dest_qpn;
		if (f.ipv6) {
			bpf_probe_read_kernel(call.dgid, 16, ip + 24);
		} else {
			call.dgid[10] = 0xff;
			call.dgid[11] = 0xff;
			bpf_probe_read_kernel(call.dgid + 12, 4, ip + 16);
		}
	}
	/* Its buffer was freed and is used again before its call returned: it is on its way. */
	earlier = bpf_map_lookup_elem(&tx_calls, &key);
	if (earlier)
		commit(earlier, 0);
	if (bpf_map_update_elem(&tx_calls, &key, &call, BPF_ANY))
		count_loss(CW_LOSS_CALL_TABLE);
	return 0;
}

static __always_inline int tx_enter(struct call_key key, const void *qp, const void *pkt,
				    struct sk_buff *skb, bool may_drop)
{
	struct cw_live_qp *live;

	if (READ_AT(const void *, pkt, layout.pkt_qp) != qp) {
		__sync_fetch_and_add(&layout_mismatches, 1);
		return 0;
	}
	live = live_qp_of(qp);
	return live ? count_sent(key, qp, live, place_in_notes(pkt), skb, may_drop) : 0;
}

static __always_inline int tx_exit(struct call_key key, int result)
{
	struct tx_call *call = bpf_map_lookup_elem(&tx_calls, &key);

	if (!call)
		return 0;
	commit(call, result);
	bpf_map_delete_elem(&tx_calls, &key);
	return 0;
}

SEC("fentry/rxe_xmit_packet")
int BPF_PROG(xmit_fentry, void *qp, void *pkt, struct sk_buff *skb)
{
	return tx_enter(traced_call(pkt), qp, pkt, skb, true);
}

SEC("fexit/rxe_xmit_packet")
int BPF_PROG(xmit_fexit, void *qp, void *pkt, struct sk_buff *skb, int result)
{
	return tx_exit(traced_call(pkt), result);
}

SEC("kprobe/rxe_xmit_packet")
int BPF_KPROBE(xmit_kprobe, void *qp, void *pkt, struct sk_buff *skb)
{
	return tx_enter(kprobe_call(ctx), qp, pkt, skb, true);
}

SEC("kretprobe/rxe_xmit_packet")
int BPF_KRETPROBE(xmit_kretprobe, int result)
{
	return tx_exit(kretprobe_call(ctx), result);
}

/* Until Linux 5.14 rxe_xmit_packet is inlined into its callers; behind it the way forks, and only
 * ready queue pairs get here. */
SEC("kprobe/rxe_send")
int BPF_KPROBE(send_kprobe, void *pkt, struct sk_buff *skb)
{
	const void *qp = READ_AT(const void *, pkt, layout.pkt_qp);

	return tx_enter(kprobe_call(ctx), qp, pkt, skb, false);
}

SEC("kretprobe/rxe_send")
int BPF_KRETPROBE(send_kretprobe, int result)
{
	return tx_exit(kretprobe_call(ctx), result);
}

SEC("kprobe/rxe_loopback")
int BPF_KPROBE(loopback_kprobe, struct sk_buff *skb)
{
	const void *pkt = (const void *)skb + bpf_core_field_offset(struct sk_buff, cb);
	const void *qp = READ_AT(const void *, pkt, layout.pkt_qp);

	return tx_enter(kprobe_call(ctx), qp, pkt, skb, false);
}

SEC("kretprobe/rxe_loopback")
int BPF_KRETPROBE(loopback_kretprobe)
{
	return tx_exit(kretprobe_call(ctx), 0);
}

/*
 * Linux 5.10 has no BTF of modules, so no fentry on rxe's functions, and its kprobes let calls pass
 * while another BPF program runs on the same CPU. fentry on the kernel's own functions that rxe
 * calls lets none pass. Most of what goes this way is not rxe's: the socket of a queue pair points
 * back to it, and that one is in the table.
 */
static __always_inline int local_out(struct sock *sk, struct sk_buff *skb)
{
	const void *qp = sk ? BPF_CORE_READ(sk, sk_user_data) : NULL;
	__u64 address = (__u64)qp + layout.qp_ibqp;
	struct cw_live_qp *live;
	struct place place;
	__u32 headers;

	if (!qp)
		return 0;
	live = bpf_map_lookup_elem(&live_qps, &address);
	if (!live)
		return 0;
	headers = CW_UDP_BYTES + (BPF_CORE_READ(skb, protocol) == bpf_htons(ETH_P_IPV6)
					  ? CW_IPV6_BYTES
					  : CW_IPV4_BYTES);
	place.bth = BPF_CORE_READ(skb, data) + headers;
	place.transport_bytes = BPF_CORE_READ(skb, len) - headers;
	return count_sent(traced_call(skb), qp, live, place, skb, false);
}

SEC("fentry/ip_local_out")
int BPF_PROG(ip_fentry, struct net *net, struct sock *sk, struct sk_buff *skb)
{
	return local_out(sk, skb);
}

SEC("fexit/ip_local_out")
int BPF_PROG(ip_fexit, struct net *net, struct sock *sk, struct sk_buff *skb, int result)
{
	return tx_exit(traced_call(skb), result);
}

SEC("fentry/ip6_local_out")
int BPF_PROG(ip6_fentry, struct net *net, struct sock *sk, struct sk_buff *skb)
{
	return local_out(sk, skb);
}

SEC("fexit/ip6_local_out")
int BPF_PROG(ip6_fexit, struct net *net, struct sock *sk, struct sk_buff *skb, int result)
{
	return tx_exit(traced_call(skb), result);
}

/* ---- in ------------------------------------------------------------------------------------- */

/* The PSN that a queue pair's responder expects, for the first frame that we see of it. */
static __always_inline __u32 expected_psn(const void *qp, const struct cw_live_qp *live, __u32 psn)
{
	if (live->has_rq_psn && live->key.generation_ns > complete_since_ns && complete_since_ns)
		return live->rq_psn;
	/* With nothing in its queue the responder has taken all that came before this frame. */
	if (layout.qp_resp_psn >= 0 && layout.qp_req_pkts_len >= 0 &&
	    !READ_AT(__u32, qp, layout.qp_req_pkts_len))
		return READ_AT(__u32, qp, layout.qp_resp_psn) & CW_PSN_MASK;
	return psn;
}

static __always_inline int count_received(const void *qp, struct cw_live_qp *live,
					  struct place place, struct sk_buff *skb)
{
	struct frame f = {};
	struct cw_wire_sequences *s;
	struct cw_wire_counters *c;
	struct cw_qp_key key;
	__s64 kernel_next = -1;
	__u32 frame_class;
	int lost = 0;

	if (!read_frame(&f, place, skb, live)) {
		__sync_fetch_and_add(&layout_mismatches, 1);
		count_loss(CW_LOSS_WIRE_FRAME);
		return 0;
	}
	if (!layout_matches)
		layout_matches = 1;
	frame_class = cw_bth_class(f.opcode);
	s = sequences_of(live);
	if (s && frame_class == CW_WIRE_REQUEST) {
		if (layout.qp_resp_psn >= 0)
			kernel_next = READ_AT(__u32, qp, layout.qp_resp_psn) & CW_PSN_MASK;
		frame_class =
			cw_sequence_rx_request(s, f.opcode, f.psn, f.n_psns,
					       expected_psn(qp, live, f.psn), kernel_next, &lost);
	} else if (s) {
		if (layout.qp_comp_psn >= 0)
			kernel_next = READ_AT(__u32, qp, layout.qp_comp_psn) & CW_PSN_MASK;
		frame_class = cw_sequence_rx_response(s, f.opcode, f.psn, kernel_next, &lost);
	}
	if (lost)
		count_loss(CW_LOSS_WIRE_FRAME);
	key = live->key;
	c = counters_of(&key);
	if (c)
		count_frame(&c->rx, frame_class, f.wire_bytes, f.payload_bytes, f.psn, f.opcode);
	return 0;
}

static __always_inline int rx(const void *qp, struct sk_buff *skb)
{
	const void *pkt = (const void *)skb + bpf_core_field_offset(struct sk_buff, cb);
	struct cw_live_qp *live;

	if (READ_AT(const void *, pkt, layout.pkt_qp) != qp) {
		__sync_fetch_and_add(&layout_mismatches, 1);
		return 0;
	}
	live = live_qp_of(qp);
	return live ? count_received(qp, live, place_in_notes(pkt), skb) : 0;
}

SEC("fentry/rxe_resp_queue_pkt")
int BPF_PROG(request_fentry, void *qp, struct sk_buff *skb)
{
	return rx(qp, skb);
}

SEC("kprobe/rxe_resp_queue_pkt")
int BPF_KPROBE(request_kprobe, void *qp, struct sk_buff *skb)
{
	return rx(qp, skb);
}

SEC("fentry/rxe_comp_queue_pkt")
int BPF_PROG(response_fentry, void *qp, struct sk_buff *skb)
{
	return rx(qp, skb);
}

SEC("kprobe/rxe_comp_queue_pkt")
int BPF_KPROBE(response_kprobe, void *qp, struct sk_buff *skb)
{
	return rx(qp, skb);
}

/* As above: rxe puts a received frame into one of the queue pair's two queues. */
SEC("fentry/skb_queue_tail")
int BPF_PROG(queue_fentry, const void *list, struct sk_buff *skb)
{
	const void *pkt = (const void *)skb + bpf_core_field_offset(struct sk_buff, cb);
	const void *qp = READ_AT(const void *, pkt, layout.pkt_qp);
	__u64 address = (__u64)qp + layout.qp_ibqp;
	struct cw_live_qp *live;

	/* A queue of somebody else: its control block holds something else. */
	if (list < qp || list > qp + RXE_QP_BYTES_AT_MOST)
		return 0;
	live = bpf_map_lookup_elem(&live_qps, &address);
	return live ? count_received(qp, live, place_in_notes(pkt), skb) : 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
