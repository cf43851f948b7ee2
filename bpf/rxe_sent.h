/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Frames that rdma_rxe sends: stored from the send call until its result is known. */
#ifndef COLLWIRE_RXE_SENT_H
#define COLLWIRE_RXE_SENT_H

#include "calls.h"
#include "rxe_counters.h"
#include "collwire/qp_records.h"
#include "collwire/wire_records.h"

enum {
	QP_STATE_READY = 2, /* enum rxe_qp_state, the same in every version that has it */
};

/* One frame in flight through a driver or rxe's loopback. */
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
	__u8 never_sent; /* rxe will drop it and return success */
	__u32 reserved;
	__u8 dgid[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct cw_call_key);
	__type(value, struct tx_call);
} tx_calls SEC(".maps");

static __always_inline void count_ud_peer(const struct tx_call *call)
{
	struct cw_ud_peer_key key = {.qp = call->key, .dest_qpn = call->dest_qpn};
	struct cw_ud_peer_counters zero = {};
	struct cw_ud_peer_counters *c;

	__builtin_memcpy(key.dgid, call->dgid, sizeof(key.dgid));
	c = bpf_map_lookup_elem(&ud_peers, &key);
	if (!c) {
		insert(&ud_peers, &key, &zero);
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

/* The place where a sent frame is seen. */
struct tx_place {
	bool may_drop;	  /* rxe still decides whether the queue pair is ready */
	__u32 link_bytes; /* of the link's header, that are in the buffer already */
};

static __always_inline void count_sent(struct cw_call_key key, struct tx_place way, const void *qp,
				       struct cw_live_qp *live, struct place place,
				       struct sk_buff *skb)
{
	struct tx_call call = {};
	struct tx_call *earlier;
	struct frame f = {};
	struct cw_wire_sequences *s;
	bool is_response;

	if (!read_frame(&f, place, skb, live) ||
	    way.link_bytes + f.ip_bytes != BPF_CORE_READ(skb, len)) {
		__sync_fetch_and_add(&layout_mismatches, 1);
		count_loss(CW_LOSS_WIRE_FRAME);
		return;
	}
	if (!layout_matches)
		layout_matches = 1;
	call.key = live->key;
	call.wire_bytes = f.wire_bytes;
	call.payload_bytes = f.payload_bytes;
	call.psn = f.psn;
	call.opcode = f.opcode;
	call.frame_class = cw_bth_class(f.opcode);
	call.entered_ns = bpf_ktime_get_ns();
	is_response = call.frame_class == CW_WIRE_RESPONSE || call.frame_class == CW_WIRE_ACK;
	call.never_sent = way.may_drop && will_be_dropped(qp, !is_response);
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
	/* Its buffer was freed and reused before its call returned: it was sent. */
	earlier = bpf_map_lookup_elem(&tx_calls, &key);
	if (earlier)
		commit(earlier, 0);
	s = call.never_sent ? NULL : sequences_of(live);
	if (s)
		call.frame_class = cw_sequence_tx(s, f.opcode, f.psn, f.n_psns);
	if (bpf_map_update_elem(&tx_calls, &key, &call, BPF_ANY))
		count_loss(CW_LOSS_CALL_TABLE);
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

#endif
