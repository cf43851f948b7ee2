/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The frame counters of each queue pair. */
#ifndef COLLWIRE_RXE_COUNTERS_H
#define COLLWIRE_RXE_COUNTERS_H

#include "qp_table.h"
#include "rxe_frame.h"
#include "collwire/qp_records.h"
#include "collwire/wire_records.h"
#include "collwire/wire_sequence.h"

/*
 * Frames whose header contradicts our layout of rxe's packet structure: then the layout is wrong
 * and nothing is counted.
 */
__u64 layout_mismatches = 0;
__u64 layout_matches = 0;
/*
 * Monotonic time from which on every frame that passes our probes is counted: a later queue pair
 * has no unseen history.
 */
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
	if (!s)
		insert(&wire_sequences, &key, zero);
	else if (bpf_map_update_elem(&wire_sequences, &key, zero, BPF_ANY))
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
	insert(&wire, key, zero);
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

#endif
