/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Every frame of rdma_rxe, per queue pair: at the hand-over to the network, and at the hand-over of
 * a received frame to a queue pair. docs/sources/rxe_wire.md lists the probes, their cost and what
 * they miss.
 */
#include "calls.h"
#include "rxe_counters.h"
#include "rxe_sent.h"
#include "twice.h"
#include "collwire/qp_records.h"
#include "collwire/wire_records.h"

enum {
	RXE_QP_BYTES_AT_MOST = 16384,
};

/* A missed call of the loopback programs is a loss only if this is set. */
__u64 loopback_seen = 0;

static __always_inline bool is_loopback(const void *pkt)
{
	bool loopback = READ_AT(__u32, pkt, layout.pkt_mask) & layout.loopback_mask;

	if (loopback && !loopback_seen)
		loopback_seen = 1;
	return loopback;
}

/* sent frames */

/*
 * To other nodes: where a netdev's driver takes the frame, and where it returns the result. Both
 * run with softirqs off, so this program is never preempted and misses no call. Frames that a
 * queueing discipline drops were never on a wire.
 */

/* macvlan, macvtap, ipvlan, ipvtap: they hand frames to another device unchanged, with the owner.
 */
static __always_inline bool is_part_of_another(struct net_device *dev)
{
	const char *kind = BPF_CORE_READ(dev, rtnl_link_ops, kind);
	char name[8] = {};

	bpf_probe_read_kernel_str(name, sizeof(name), kind);
	if (name[0] == 'm' && name[1] == 'a' && name[2] == 'c')
		return name[3] == 'v';
	return name[0] == 'i' && name[1] == 'p' && name[2] == 'v';
}

/* The netdev that the rxe device of a queue pair was made on. NULL: not known. */
static __always_inline struct net_device *netdev_of(const void *qp)
{
	struct ib_qp *ib_qp = (void *)qp + layout.qp_ibqp;
	struct ib_device *device = BPF_CORE_READ(ib_qp, device);
	struct ib_port_data *ports;

	if (!bpf_core_field_exists(device->port_data))
		return NULL;
	ports = BPF_CORE_READ(device, port_data);
	if (!ports)
		return NULL;
	ports = (void *)ports + bpf_core_type_size(struct ib_port_data); /* of port 1 */
	return BPF_CORE_READ(ports, netdev);
}

/* A device below the queue pair's own: the frame was counted there. */
static __always_inline bool is_lower_device(struct net_device *dev, struct sk_buff *skb,
					    const void *qp)
{
	__u32 priv_flags = READ_INTEGER(dev, priv_flags);
	struct net_device *own = netdev_of(qp);

	/* A VLAN device is above the queue pair's own. */
	if (own && own != dev && !(priv_flags & IFF_802_1Q_VLAN) && is_part_of_another(own))
		return true;
	return BPF_CORE_READ(dev, flags) & IFF_SLAVE ||
	       priv_flags & (IFF_BRIDGE_PORT | IFF_TEAM_PORT) ||
	       BPF_CORE_READ(skb, protocol) == bpf_htons(ETH_P_8021Q) ||
	       (BPF_CORE_READ(skb, vlan_proto) && !(priv_flags & IFF_802_1Q_VLAN));
}

/* One of this node's RoCE frames whose socket a queueing discipline (netem) removed. */
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
	struct tx_place way = {false, CW_ETHERNET_BYTES};
	struct cw_live_qp *live;
	struct place place;
	const void *qp;

	if (is_held())
		return 0;
	if ((__u64)BPF_CORE_READ(skb, destructor) != layout.tx_destructor) {
		if (is_orphan(skb))
			count_loss(CW_LOSS_WIRE_FRAME);
		return 0;
	}
	qp = BPF_CORE_READ(skb, sk, sk_user_data);
	if (!qp || is_lower_device(dev, skb, qp))
		return 0;
	live = live_qp_of(qp);
	if (!live)
		return 0;
	place = place_on_wire(skb);
	count_sent(traced_call(skb), way, qp, live, place, skb);
	return 0;
}

SEC("raw_tp/net_dev_xmit")
int BPF_PROG(netdev_done, struct sk_buff *skb, int result)
{
	return tx_exit(traced_call(skb), result);
}

/* To the same node: the frame passes no netdev. */

static __always_inline void loopback(struct cw_call_key key, bool may_drop, const void *qp,
				     const void *pkt, struct sk_buff *skb)
{
	struct tx_place way = {may_drop, 0};
	struct cw_live_qp *live;
	struct place place;

	if (is_held())
		return;
	if (READ_AT(const void *, pkt, layout.pkt_qp) != qp) {
		__sync_fetch_and_add(&layout_mismatches, 1);
		return;
	}
	place = place_in_notes(pkt);
	place.ip = BPF_CORE_READ(skb, data);
	live = live_qp_of(qp);
	if (live)
		count_sent(key, way, qp, live, place, skb);
}

static __always_inline int xmit(enum chance chance, const void *qp, const void *pkt,
				struct sk_buff *skb)
{
	struct cw_call_key key = traced_call(pkt);

	if (!is_loopback(pkt))
		pass_call(CW_TWICE_XMIT, chance);
	else if (take_call(CW_TWICE_XMIT, chance, key))
		loopback(key, true, qp, pkt, skb);
	return 0;
}

static __always_inline int xmit_done(enum chance chance, const void *pkt, int result)
{
	struct cw_call_key key = traced_call(pkt);

	if (!is_loopback(pkt))
		pass_call(CW_TWICE_XMIT_EXIT, chance);
	else if (take_call(CW_TWICE_XMIT_EXIT, chance, key))
		tx_exit(key, result);
	return 0;
}

SIBLING_PROGRAMS("fentry/rxe_xmit_packet", xmit_fentry, xmit(chance, qp, pkt, skb), void *qp,
		 void *pkt, struct sk_buff *skb)

SIBLING_PROGRAMS("fexit/rxe_xmit_packet", xmit_fexit, xmit_done(chance, pkt, result), void *qp,
		 void *pkt, struct sk_buff *skb, int result)

SEC("kprobe/rxe_xmit_packet")
int BPF_KPROBE(xmit_kprobe, void *qp, void *pkt, struct sk_buff *skb)
{
	if (is_loopback(pkt))
		loopback(kprobe_call(ctx), true, qp, pkt, skb);
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

	loopback(kprobe_call(ctx), false, READ_AT(const void *, pkt, layout.pkt_qp), pkt, skb);
	return 0;
}

SEC("kretprobe/rxe_loopback")
int BPF_KRETPROBE(loopback_kretprobe)
{
	return tx_exit(kretprobe_call(ctx), 0);
}

/* received frames */

/* The PSN that a queue pair's responder expects, for the first frame that is counted. */
static __always_inline __u32 expected_psn(const void *qp, const struct cw_live_qp *live, __u32 psn)
{
	if (live->has_rq_psn && live->key.generation_ns > complete_since_ns && complete_since_ns)
		return live->rq_psn;
	/* With an empty queue the responder has taken all frames before this one. */
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

	if (is_held())
		return 0;
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

static __always_inline int rx(enum cw_twice_function function, enum chance chance, const void *qp,
			      struct sk_buff *skb)
{
	const void *pkt = (const void *)skb + bpf_core_field_offset(struct sk_buff, cb);
	struct cw_live_qp *live;

	if (!take_call(function, chance, traced_call(skb)))
		return 0;
	if (READ_AT(const void *, pkt, layout.pkt_qp) != qp) {
		__sync_fetch_and_add(&layout_mismatches, 1);
		return 0;
	}
	is_loopback(pkt);
	live = live_qp_of(qp);
	if (live)
		count_received(qp, live, place_in_notes(pkt), skb);
	return 0;
}

SIBLING_PROGRAMS("fentry/rxe_resp_queue_pkt", request_fentry, rx(CW_TWICE_REQUEST, chance, qp, skb),
		 void *qp, struct sk_buff *skb)

SEC("kprobe/rxe_resp_queue_pkt")
int BPF_KPROBE(request_kprobe, void *qp, struct sk_buff *skb)
{
	return rx(CW_TWICE_REQUEST, CHANCE_ONLY, qp, skb);
}

SIBLING_PROGRAMS("fentry/rxe_comp_queue_pkt", response_fentry,
		 rx(CW_TWICE_RESPONSE, chance, qp, skb), void *qp, struct sk_buff *skb)

SEC("kprobe/rxe_comp_queue_pkt")
int BPF_KPROBE(response_kprobe, void *qp, struct sk_buff *skb)
{
	return rx(CW_TWICE_RESPONSE, CHANCE_ONLY, qp, skb);
}

/*
 * Linux 5.10 has no BTF of modules, so no fentry on rxe's functions, and its kprobes miss calls
 * while another BPF program runs on the same CPU. rxe puts a received frame into one of the queue
 * pair's two queues with a function of the kernel itself, which can have fentry.
 */
static __always_inline int queued(enum chance chance, const void *list, struct sk_buff *skb)
{
	const void *pkt = (const void *)skb + bpf_core_field_offset(struct sk_buff, cb);
	const void *qp = READ_AT(const void *, pkt, layout.pkt_qp);
	__u64 address = (__u64)qp + layout.qp_ibqp;
	struct cw_live_qp *live = NULL;

	/* Not a queue of rxe: its control block holds other data. */
	if (list >= qp && list <= qp + RXE_QP_BYTES_AT_MOST)
		live = bpf_map_lookup_elem(&live_qps, &address);
	if (!live)
		pass_call(CW_TWICE_QUEUE, chance);
	else if (take_call(CW_TWICE_QUEUE, chance, traced_call(skb)))
		count_received(qp, live, place_in_notes(pkt), skb);
	return 0;
}

SIBLING_PROGRAMS("fentry/skb_queue_tail", queue_fentry, queued(chance, list, skb), const void *list,
		 struct sk_buff *skb)

char LICENSE[] SEC("license") = "Dual BSD/GPL";
