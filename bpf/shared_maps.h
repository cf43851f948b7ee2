/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The maps that all BPF objects of collwire share. shared.bpf.c creates them once; every other
 * object that includes this file gets their descriptors before it is loaded
 * (userspace/loader/shared_maps.h). Sizes here are the defaults: the loader may change them.
 */
#ifndef COLLWIRE_SHARED_MAPS_H
#define COLLWIRE_SHARED_MAPS_H

#include "kernel_types.h"
#include <bpf/bpf_helpers.h>
#include "collwire/loss_records.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "collwire/tables.h"

/* Every event record, see enum cw_kind. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 8 << 20);
} events SEC(".maps");

/*
 * Records at the rate of a program's calls; no reader waits for them. Waking the recorder costs a
 * program in a virtual machine 15 us: so it reads this at each tick, and is woken only when a
 * sixteenth of the buffer is full.
 */
#define BULK_BYTES (16 << 20)
#define BULK_WAKE  (BULK_BYTES / 16)

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, BULK_BYTES);
} bulk_events SEC(".maps");

/* Dropped records, per class and CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cw_losses);
} losses SEC(".maps");

/* Live queue pairs, by the address of the kernel's struct ib_qp. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, struct cw_live_qp);
} live_qps SEC(".maps");

/*
 * The number of destroyed queue pairs with this number in this process: distinguishes reused
 * numbers.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct cw_epoch_key);
	__type(value, __u32);
} post_epochs SEC(".maps");

/*
 * The open TCP sockets of NCCL connections, by the address of the kernel's struct sock. One that
 * finds no room ends without a record.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, __u64);
	__type(value, struct cw_open_socket);
} open_sockets SEC(".maps");

/* With filter_by_tgid only the queue pairs of these thread groups are recorded. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u8);
} tgid_filter SEC(".maps");

/*
 * The gate. CW_HELD: the recorder attaches its probes one after the other, so counts would be
 * incomplete: programs count nothing and emit no calls and launches. Lifecycle events are emitted.
 * CW_OVER: the recording has ended and the recorder detaches: programs emit nothing.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} held SEC(".maps");

const volatile bool filter_by_tgid = false;

static __always_inline __u64 hold_state(void)
{
	__u32 zero = 0;
	volatile __u64 *h = bpf_map_lookup_elem(&held, &zero);

	return h ? *h : CW_NOT_HELD;
}

static __always_inline bool is_held(void)
{
	return hold_state() != CW_NOT_HELD;
}

static __always_inline bool is_over(void)
{
	return hold_state() == CW_OVER;
}

static __always_inline void count_loss(enum cw_loss_class loss_class)
{
	__u32 zero = 0;
	struct cw_losses *l = bpf_map_lookup_elem(&losses, &zero);

	if (is_over())
		return; /* after the recording */
	/* Atomic: an interrupt on this CPU may run a program that counts, too. */
	if (l)
		__sync_fetch_and_add(&l->records[loss_class], 1);
}

/*
 * Inserts a value if the key has none. Since Linux 6.15 (bpf: Convert hashtab.c to rqspinlock) an
 * update fails if it cannot take the map's lock in time, as when a hypervisor has stopped another
 * CPU. The second try has no effect if the first succeeded (unless the table forgets the oldest),
 * and is no branch: this runs in loops.
 */
static __always_inline void insert(void *map, const void *key, const void *value)
{
	bpf_map_update_elem(map, key, value, BPF_NOEXIST);
	bpf_map_update_elem(map, key, value, BPF_NOEXIST);
}

static __always_inline bool tgid_wanted(__u32 tgid)
{
	return !filter_by_tgid || bpf_map_lookup_elem(&tgid_filter, &tgid);
}

/*
 * A zeroed record in the ring buffer with its header filled in, or NULL: then the loss is counted,
 * unless the recording is over.
 */
#define RESERVE_RECORD(type, record_kind, loss_class)                                              \
	(is_over() ? (struct type *)NULL : RESERVE_RECORD_IN(events, type, record_kind, loss_class))

/* The same without the check, for callers that have asked is_held(). */

#define RESERVE_RECORD_IN(ring, type, record_kind, loss_class)                                     \
	RESERVE_RECORD_OF(ring, type, record_kind, loss_class, bpf_ktime_get_ns())

/* The same, with the record's time as an argument. */

#define RESERVE_RECORD_OF(ring, type, record_kind, loss_class, of_ns)                              \
	({                                                                                         \
		struct type *r__ = bpf_ringbuf_reserve(&ring, sizeof(struct type), 0);             \
		if (r__) {                                                                         \
			__builtin_memset(r__, 0, sizeof(*r__));                                    \
			r__->header.length_bytes = sizeof(*r__);                                   \
			r__->header.kind = record_kind;                                            \
			r__->header.cpu = bpf_get_smp_processor_id();                              \
			r__->header.time_ns = of_ns;                                               \
		} else {                                                                           \
			count_loss(loss_class);                                                    \
		}                                                                                  \
		r__;                                                                               \
	})

/*
 * Submits a record of bulk_events. One in four, by its time, reads the fill level: some record does
 * so in every 4 KiB.
 */
static __always_inline void submit_bulk(void *record)
{
	__u64 time_ns = ((struct cw_header *)record)->time_ns, waiting = 0;
	bool wake;

	if (!(time_ns >> 10 & 3))
		waiting = bpf_ringbuf_query(&bulk_events, BPF_RB_AVAIL_DATA);
	wake = waiting >= BULK_WAKE && waiting % BULK_WAKE < 4096;

	bpf_ringbuf_submit(record, wake ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
}

#endif
