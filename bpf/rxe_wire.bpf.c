/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Every frame of rdma_rxe, per queue pair: where it is handed to the network, and where a received
 * one is handed to a queue pair. docs/sources/rxe_wire.md says what each probe sits on, what it
 * costs and what it misses.
 */
#include "calls.h"
#include "rxe_counters.h"
#include "twice.h"

enum {
	RXE_QP_BYTES_AT_MOST = 16384,
	QP_STATE_READY = 2, /* enum rxe_qp_state, the same in every version that has it */
};

/* One frame on its way through a driver or rxe's loopback. */
struct tx_call {
	__u64 entered_ns; /* first: the recorder reads it */
	struct cw_qp_key key;
	__u32 wire_bytes;
	__u32 payload_bytes;
	__u32 psn;
	__u32 dest_qpn;
	__u8 opcode;
	__u8 frame_class;
	__u8 datagram;
	__u8 never_sent; /* rxe is about to drop it and to say that all is well */
	__u8 chance;	 /* enum chance, of the program that handles it */
	__u8 reserved[3];
	__u8 dgid[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct cw_call_key);
	__type(value, struct tx_call);
} tx_calls SEC(".maps");

/* Received frames that one of two programs has counted. */
struct rx_mark {
	__u64 entered_ns; /* first: the recorder reads it */
	__u32 chance;
	__u32 reserved;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct cw_call_key);
	__type(value, struct rx_mark);
} rx_marks SEC(".maps");

/* Only then is it a loss that the programs on the way to the same node miss a call. */
__u64 loopback_seen = 0;

static __always_inline bool is_loopback(const void *pkt)
{
	bool loopback = READ_AT(__u32, pkt, layout.pkt_mask) & layout.loopback_mask;

	if (loopback && !loopback_seen)
		loopback_seen = 1;
	return loopback;
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

/* A function that sends, as one program sees a call of it. */
struct tx_probe {
	enum chance chance;
	bool may_drop;	  /* it still decides whether the queue pair is ready */
	__u32 link_bytes; /* of the link's header, that are in the buffer already */
};

/* Whether the call is in the table now. */
static __always_inline bool count_sent(struct cw_call_key key, struct tx_probe probe,
				       const void *qp, struct cw_live_qp *live, struct place place,
				       struct sk_buff *skb)
{
	struct tx_call call = {};
	struct tx_call *earlier;
	struct tx_call *entered;
	struct frame f = {};
	struct cw_wire_sequences *s;
	bool is_response;

	if (!read_frame(&f, place, skb, live) ||
	    probe.link_bytes + f.ip_bytes != BPF_CORE_READ(skb, len)) {
		__sync_fetch_and_add(&layout_mismatches, 1);
		count_loss(CW_LOSS_WIRE_FRAME);
		return false;
	}
	if (!layout_matches)
		layout_matches = 1;
	call.key = live->key;
	call.wire_bytes = f.wire_bytes;
	call.payload_bytes = f.payload_bytes;
	call.psn = f.psn;
	call.opcode = f.opcode;
	call.frame_class = cw_bth_class(f.opcode);
	call.chance = probe.chance;
	call.entered_ns = bpf_ktime_get_ns();
	is_response = call.frame_class == CW_WIRE_RESPONSE || call.frame_class == CW_WIRE_ACK;
	call.never_sent = probe.may_drop && will_be_dropped(qp, !is_response);
	if (cw_bth_transport(f.opcode) == CW_BTH_UD) {
		call.datagram = 1;
		call.dest_qpn = f.dest_qpn;
		if (f.ipv6) {
			bpf_probe_read_kernel(call.dgid, 16, place.ip + 24);
		} else {
			call.dgid[10] = 0xff;
			call.dgid[11] = 0xff;
			bpf_probe_read_kernel(call.dgid + 12, 4, place.ip + 16);
		}
	}
	/* Its buffer was freed and is used again before its call returned: it is on its way. */
	earlier = bpf_map_lookup_elem(&tx_calls, &key);
	if (earlier)
		commit(earlier, 0);
	/* Into the table before it has any effect: where that fails the other program may try. */
	entered = bpf_map_update_elem(&tx_calls, &key, &call, BPF_ANY)
			  ? NULL
			  : bpf_map_lookup_elem(&tx_calls, &key);
	if (!entered) {
		count_loss(CW_LOSS_CALL_TABLE);
		return false;
	}
	s = call.never_sent ? NULL : sequences_of(live);
	if (s)
		entered->frame_class = cw_sequence_tx(s, f.opcode, f.psn, f.n_psns);
	return true;
}

static __always_inline int tx_exit(struct cw_call_key key, int result)
{
	struct tx_call *call = bpf_map_lookup_elem(&tx_calls, &key);

	if (!call)
		return 0;
	commit(call, result);
	bpf_map_delete_elem(&tx_calls, &key);
	return 0;
}

/*
 * To other nodes: where a netdev's driver takes the frame, and where it says what came of it. Both
 * run with softirqs off, so no CPU is ever taken from this program, and no call passes unseen.
 * Frames that a queueing discipline drops were never on a wire.
 */

/* A device below the one that the queue pair knows: the frame was counted there. */
static __always_inline bool is_lower_device(struct net_device *dev, struct sk_buff *skb)
{
	__u32 priv_flags = READ_INTEGER(dev, priv_flags);

	return BPF_CORE_READ(dev, flags) & IFF_SLAVE || priv_flags & IFF_BRIDGE_PORT ||
	       (BPF_CORE_READ(skb, vlan_proto) && !(priv_flags & IFF_802_1Q_VLAN));
}

/* One of this node's RoCE frames whose owner a queueing discipline (netem) has taken off it. */
static __always_inline bool is_orphan(struct sk_buff *skb)
{
	struct place place;

	if (BPF_CORE_READ(skb, sk) || BPF_CORE_READ(skb, skb_iif))
		return false;
	place = place_on_wire(skb);
	/* Protocol UDP, destination port; of IPv4 only. */
	return BPF_CORE_READ(skb, protocol) == bpf_htons(ETH_P_IP) &&
	       READ_AT(__u8, place.ip, 9) == 17 &&
	       READ_AT(__be16, place.bth, -6) == bpf_htons(ROCE_V2_PORT);
}

SEC("raw_tp/net_dev_start_xmit")
int BPF_PROG(netdev_start, struct sk_buff *skb, struct net_device *dev)
{
	__u32 vlan_header = READ_INTEGER(dev, priv_flags) & IFF_802_1Q_VLAN ? CW_VLAN_BYTES : 0;
	struct tx_probe probe = {CHANCE_ONLY, false, CW_ETHERNET_BYTES};
	struct cw_live_qp *live;
	struct place place;
	const void *qp;

	if ((__u64)BPF_CORE_READ(skb, destructor) != layout.tx_destructor) {
		if (is_orphan(skb))
			count_loss(CW_LOSS_WIRE_FRAME);
		return 0;
	}
	if (is_lower_device(dev, skb))
		return 0;
	qp = BPF_CORE_READ(skb, sk, sk_user_data);
	live = qp ? live_qp_of(qp) : NULL;
	if (!live)
		return 0;
	place = place_on_wire(skb);
	/* A VLAN device may or may not have put its tag in by now. */
	if (BPF_CORE_READ(skb, protocol) == bpf_htons(ETH_P_8021Q))
		probe.link_bytes += vlan_header;
	count_sent(traced_call(skb), probe, qp, live, place, skb);
	return 0;
}

SEC("raw_tp/net_dev_xmit")
int BPF_PROG(netdev_done, struct sk_buff *skb, int result)
{
	return tx_exit(traced_call(skb), result);
}

/* To the same node: no netdev is on the way. */

static __always_inline bool taken_by_other(struct cw_call_key *key, enum chance chance)
{
	struct tx_call *call = chance == CHANCE_ONLY ? NULL : bpf_map_lookup_elem(&tx_calls, key);

	return call && call->chance != chance;
}

static __always_inline void loopback(struct cw_call_key key, struct tx_probe probe, const void *qp,
				     const void *pkt, struct sk_buff *skb)
{
	struct cw_live_qp *live;
	bool taken = taken_by_other(&key, probe.chance);
	struct place place;

	if (!taken && READ_AT(const void *, pkt, layout.pkt_qp) != qp) {
		__sync_fetch_and_add(&layout_mismatches, 1);
	} else if (!taken) {
		place = place_in_notes(pkt);
		place.ip = BPF_CORE_READ(skb, data);
		live = live_qp_of(qp);
		taken = live && count_sent(key, probe, qp, live, place, skb);
		/* Neither program will want it. */
		count_chance(CW_TWICE_XMIT, probe.chance,
			     live ? taken : probe.chance == CHANCE_FIRST);
		return;
	}
	count_chance(CW_TWICE_XMIT, probe.chance, false);
}

#define XMIT_PROGRAMS(suffix, which)                                                               \
	SEC("fentry/rxe_xmit_packet")                                                              \
	int BPF_PROG(xmit_fentry##suffix, void *qp, void *pkt, struct sk_buff *skb)                \
	{                                                                                          \
		struct tx_probe probe = {which, true, 0};                                          \
                                                                                                   \
		if (is_loopback(pkt))                                                              \
			loopback(traced_call(pkt), probe, qp, pkt, skb);                           \
		else                                                                               \
			count_chance(CW_TWICE_XMIT, which, which == CHANCE_FIRST);                 \
		return 0;                                                                          \
	}                                                                                          \
	SEC("fexit/rxe_xmit_packet")                                                               \
	int BPF_PROG(xmit_fexit##suffix, void *qp, void *pkt, struct sk_buff *skb, int result)     \
	{                                                                                          \
		return tx_exit(traced_call(pkt), result);                                          \
	}

XMIT_PROGRAMS(, CHANCE_FIRST)
XMIT_PROGRAMS(_again, CHANCE_SECOND)

SEC("kprobe/rxe_xmit_packet")
int BPF_KPROBE(xmit_kprobe, void *qp, void *pkt, struct sk_buff *skb)
{
	struct tx_probe probe = {CHANCE_ONLY, true, 0};

	if (is_loopback(pkt))
		loopback(kprobe_call(ctx), probe, qp, pkt, skb);
	return 0;
}

SEC("kretprobe/rxe_xmit_packet")
int BPF_KRETPROBE(xmit_kretprobe, int result)
{
	return tx_exit(kretprobe_call(ctx), result);
}

/* Until Linux 5.14 rxe_xmit_packet is inlined into its callers, but this is not. Only frames of
 * ready queue pairs get here. */
SEC("kprobe/rxe_loopback")
int BPF_KPROBE(loopback_kprobe, struct sk_buff *skb)
{
	const void *pkt = (const void *)skb + bpf_core_field_offset(struct sk_buff, cb);
	struct tx_probe probe = {CHANCE_ONLY, false, 0};

	loopback(kprobe_call(ctx), probe, READ_AT(const void *, pkt, layout.pkt_qp), pkt, skb);
	return 0;
}

SEC("kretprobe/rxe_loopback")
int BPF_KRETPROBE(loopback_kretprobe)
{
	return tx_exit(kretprobe_call(ctx), 0);
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

/* Whether this program is the one to count the frame: the other has not, and will see that we have.
 */
static __always_inline bool take_received(struct cw_call_key *key, enum chance chance)
{
	struct rx_mark mark = {.entered_ns = bpf_ktime_get_ns(), .chance = chance};
	struct rx_mark *other;

	if (chance == CHANCE_ONLY)
		return true;
	other = bpf_map_lookup_elem(&rx_marks, key);
	if (other && other->chance != chance) {
		bpf_map_delete_elem(&rx_marks, key);
		return false;
	}
	if (!bpf_map_update_elem(&rx_marks, key, &mark, BPF_ANY))
		return true;
	count_loss(CW_LOSS_CALL_TABLE);
	return false;
}

static __always_inline int rx(enum cw_twice_function function, enum chance chance, const void *qp,
			      struct sk_buff *skb)
{
	const void *pkt = (const void *)skb + bpf_core_field_offset(struct sk_buff, cb);
	struct cw_call_key key = traced_call(skb);
	struct cw_live_qp *live;
	bool taken = false;

	if (READ_AT(const void *, pkt, layout.pkt_qp) != qp) {
		__sync_fetch_and_add(&layout_mismatches, 1);
	} else {
		is_loopback(pkt);
		live = live_qp_of(qp);
		taken = live ? take_received(&key, chance) : chance == CHANCE_FIRST;
		if (live && taken)
			count_received(qp, live, place_in_notes(pkt), skb);
	}
	count_chance(function, chance, taken);
	return 0;
}

#define RX_PROGRAMS(name, target, index, suffix, which)                                            \
	SEC("fentry/" target)                                                                      \
	int BPF_PROG(name##_fentry##suffix, void *qp, struct sk_buff *skb)                         \
	{                                                                                          \
		return rx(index, which, qp, skb);                                                  \
	}

RX_PROGRAMS(request, "rxe_resp_queue_pkt", CW_TWICE_REQUEST, , CHANCE_FIRST)
RX_PROGRAMS(request, "rxe_resp_queue_pkt", CW_TWICE_REQUEST, _again, CHANCE_SECOND)
RX_PROGRAMS(response, "rxe_comp_queue_pkt", CW_TWICE_RESPONSE, , CHANCE_FIRST)
RX_PROGRAMS(response, "rxe_comp_queue_pkt", CW_TWICE_RESPONSE, _again, CHANCE_SECOND)

SEC("kprobe/rxe_resp_queue_pkt")
int BPF_KPROBE(request_kprobe, void *qp, struct sk_buff *skb)
{
	return rx(CW_TWICE_REQUEST, CHANCE_ONLY, qp, skb);
}

SEC("kprobe/rxe_comp_queue_pkt")
int BPF_KPROBE(response_kprobe, void *qp, struct sk_buff *skb)
{
	return rx(CW_TWICE_RESPONSE, CHANCE_ONLY, qp, skb);
}

/*
 * Linux 5.10 has no BTF of modules, so no fentry on rxe's functions, and its kprobes let calls pass
 * while another BPF program runs on the same CPU. rxe puts a received frame into one of the queue
 * pair's two queues with a function of the kernel's own, that can have fentry.
 */
static __always_inline int queued(enum chance chance, const void *list, struct sk_buff *skb)
{
	const void *pkt = (const void *)skb + bpf_core_field_offset(struct sk_buff, cb);
	const void *qp = READ_AT(const void *, pkt, layout.pkt_qp);
	__u64 address = (__u64)qp + layout.qp_ibqp;
	struct cw_call_key key = traced_call(skb);
	struct cw_live_qp *live = NULL;
	bool taken;

	/* A queue of somebody else: its control block holds something else. */
	if (list >= qp && list <= qp + RXE_QP_BYTES_AT_MOST)
		live = bpf_map_lookup_elem(&live_qps, &address);
	taken = live ? take_received(&key, chance) : chance == CHANCE_FIRST;
	if (live && taken)
		count_received(qp, live, place_in_notes(pkt), skb);
	count_chance(CW_TWICE_QUEUE, chance, taken);
	return 0;
}

SEC("fentry/skb_queue_tail")
int BPF_PROG(queue_fentry, const void *list, struct sk_buff *skb)
{
	return queued(CHANCE_FIRST, list, skb);
}

SEC("fentry/skb_queue_tail")
int BPF_PROG(queue_fentry_again, const void *list, struct sk_buff *skb)
{
	return queued(CHANCE_SECOND, list, skb);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
