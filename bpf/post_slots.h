/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The sums of posted work requests, and the state of a post while it is counted. */
#ifndef COLLWIRE_POST_SLOTS_H
#define COLLWIRE_POST_SLOTS_H

#include "own_stack.h"
#include "qp_table.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "collwire/post_records.h"
#include "collwire/verbs.h"

/* Not a class: no request was read yet. */
#define NO_CLASS 0xff

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct cw_slot_key);
	__type(value, struct cw_post_slot);
} posts SEC(".maps");

/* Queue pairs whose CW_KIND_VERBS_QP record was emitted, with the time. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct cw_verbs_key);
	__type(value, __u64);
} announced_qps SEC(".maps");

/* Never written: new entries are copies of them. They are too large for the stack. */
struct empty {
	struct cw_batch batch;
	struct cw_post_slot slot;
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct empty);
} empty SEC(".maps");

/*
 * In a slice: the queue pairs and connections of NCCL whose posts are counted by operation. The
 * recorder fills both before a slice, and empties them after it.
 */
const volatile bool watches_connections = false;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct cw_watched_key);
	__type(value, struct cw_watched_qp);
} watched_qps SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct cw_watched_key);
	__type(value, struct cw_watched_sums);
} watched_connections SEC(".maps");

/* A chain that is being counted. */
struct walk {
	struct cw_slot_key key; /* the slot for `sum` */
	struct cw_post_sum sum;
	__u64 sent_bytes; /* of the whole chain */
	__u64 qp_address;
	__u64 next_wr;
	__u64 next_sge;
	__u64 length_bytes;
	/*
	 * 0, but unknown to the verifier: it would follow a known flag through every further step
	 * of the loop.
	 */
	__u32 zero;
	__u32 entries_left;
	__u32 post_class;
	__u32 in_request;
	__u32 new_post; /* not counted in a slot yet */
	__u32 fault;
	__u32 qp_type;
	__u32 handle;
	__u32 new_slots; /* the queue pair may be new */
	__u32 lost;	 /* requests without counters: the table is full */
	__u32 rounds_left;
};

static __always_inline void announce(struct walk *w)
{
	struct cw_verbs_key *key = &w->key.qp;
	__u64 now = bpf_ktime_get_ns();
	struct task_struct *task = (void *)bpf_get_current_task();
	struct task_struct *leader = BPF_CORE_READ(task, group_leader);
	struct cw_verbs_qp *e;
	__u64 device = 0;

	if (bpf_map_lookup_elem(&announced_qps, key))
		return;
	e = RESERVE_RECORD(cw_verbs_qp, CW_KIND_VERBS_QP, CW_LOSS_VERBS_QP);
	if (!e)
		return;
	e->key = *key;
	e->qp_address = w->qp_address;
	e->start_boottime_ns = start_boottime(leader);
	e->qp_type = w->qp_type;
	e->handle = w->handle;
	if (!bpf_probe_read_user(&device, sizeof(device),
				 (void *)(key->context + CW_IBV_CONTEXT_DEVICE)))
		bpf_probe_read_user_str(e->device, sizeof(e->device),
					(void *)(device + CW_IBV_DEVICE_NAME));
	bpf_ringbuf_submit(e, 0);
	bpf_map_update_elem(&announced_qps, key, &now, BPF_ANY);
}

/*
 * The counters for w->key; created if missing. The queue pair's record is emitted at the end of the
 * walk: loops already take much of the verifier's budget.
 */
static __always_inline struct cw_post_slot *slot_of(struct walk *w)
{
	/* Up to Linux 6.1 memory that a function was given cannot be a key. */
	struct cw_slot_key key = w->key;
	struct cw_post_slot *slot = bpf_map_lookup_elem(&posts, &key);
	struct empty *nothing;
	__u32 zero = 0;

	if (slot)
		return slot;
	nothing = bpf_map_lookup_elem(&empty, &zero);
	if (!nothing)
		return NULL;
	insert(&posts, &key, &nothing->slot);
	slot = bpf_map_lookup_elem(&posts, &key);
	/* With a full table no queue pair counts as new: else each post would emit its record. */
	if (slot) {
		slot->first_ns = bpf_ktime_get_ns();
		w->new_slots = 1 + w->zero;
	}
	return slot;
}

static __always_inline void add_all(struct cw_post_slot *slot, const struct cw_post_sum *from,
				    __u32 post_class)
{
	struct cw_post_class_counters *to = &slot->sum.counters;
	const struct cw_post_class_counters *c = &from->counters;

	to->wrs += c->wrs;
	to->zero_length_wrs += c->zero_length_wrs;
	to->bytes += c->bytes;
	to->pad_bytes += c->pad_bytes;
	to->packets[0] += c->packets[0];
	to->packets[1] += c->packets[1];
	to->packets[2] += c->packets[2];
	to->packets[3] += c->packets[3];
	to->packets[4] += c->packets[4];
	if (post_class != CW_POST_READ)
		return;
	slot->sum.multi_packet[0] += from->multi_packet[0];
	slot->sum.multi_packet[1] += from->multi_packet[1];
	slot->sum.multi_packet[2] += from->multi_packet[2];
	slot->sum.multi_packet[3] += from->multi_packet[3];
	slot->sum.multi_packet[4] += from->multi_packet[4];
}

static __always_inline bool begin_walk(struct walk *w, struct pt_regs *ctx)
{
	__u64 qp_address = PT_REGS_PARM1(ctx);
	__u64 id = bpf_get_current_pid_tgid();
	__u32 tgid = id >> 32;
	struct cw_epoch_key epoch_key = {.tgid = tgid};
	struct cw_ibv_qp qp;
	__u32 *epoch;

	if (is_held() || !tgid_wanted(tgid))
		return false;
	if (bpf_probe_read_user(&qp, sizeof(qp), (void *)qp_address)) {
		count_loss(CW_LOSS_POST_FAULT);
		return false;
	}
	epoch_key.qpn = qp.qp_num;
	epoch = bpf_map_lookup_elem(&post_epochs, &epoch_key);
	/* A hash key: leftover stack bytes would make a new queue pair of each post. */
	__builtin_memset(&w->key, 0, sizeof(w->key));
	w->key.qp.context = qp.context;
	w->key.qp.tgid = tgid;
	w->key.qp.qpn = qp.qp_num;
	w->key.qp.epoch = epoch ? *epoch : 0;
	w->key.tid = (__u32)id;
	w->zero = id >> 63; /* no process id is that large */
	__builtin_memset(&w->sum, 0, sizeof(w->sum));
	w->key.post_class = NO_CLASS + w->zero;
	w->sent_bytes = w->zero;
	w->fault = w->zero;
	w->lost = w->zero;
	w->new_slots = w->zero;
	w->in_request = w->zero;
	w->qp_address = qp_address;
	w->qp_type = qp.qp_type;
	w->handle = qp.handle;
	w->new_post = 1 + w->zero;
	return true;
}

static __always_inline void count_operation(const struct walk *w, bool is_whole)
{
	struct cw_watched_key key = {.address = w->qp_address, .tgid = w->key.qp.tgid};
	struct cw_watched_sums *sums;
	struct cw_watched_qp *qp;
	__u64 steps = 0;

	if (!watches_connections)
		return;
	qp = bpf_map_lookup_elem(&watched_qps, &key);
	if (!qp)
		return;
	key.address = qp->connection;
	sums = bpf_map_lookup_elem(&watched_connections, &key);
	if (!sums)
		return;
	if (!is_whole || bpf_probe_read_user(&steps, sizeof(steps), (void *)qp->steps_at)) {
		sums->faults += 1;
		return;
	}
	cw_count_watched(sums, steps, w->sent_bytes);
}

static __always_inline void finish_walk(struct walk *w)
{
	if (w->lost)
		count_loss(CW_LOSS_POST_TABLE);
	if (w->new_slots)
		announce(w);
}

#endif
