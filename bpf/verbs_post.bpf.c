/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Work requests that programs post to their queue pairs, summed per queue pair and kind of request.
 * uprobes on the driver's post_send (chains of struct ibv_send_wr), and on the functions behind the
 * ibv_wr_* calls of queue pairs that have them (a batch between start and complete). The recorder
 * finds the functions and the instructions to sit on. docs/sources/posts.md says what that costs
 * and what it misses.
 *
 * Nothing in here looks at kernel structures but the registers and the owner's start time.
 */
#include "qp_table.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "collwire/verbs.h"

/*
 * A step of the walk takes a request with its first gather entry, or one more entry. Without
 * bpf_loop the verifier looks at every step, which takes it long: so a program takes a few, and
 * calls itself for the rest. What lies beyond is counted as truncated.
 */
#define LOOP_STEPS	 16384
#define ROUND_STEPS	 4
#define MORE_ROUNDS	 31 /* the kernel allows 32 */
#define MAX_LIST_ENTRIES 32

/* Not a class: no request was read yet. */
#define NO_CLASS 0xff

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct cw_slot_key);
	__type(value, struct cw_post_slot);
} posts SEC(".maps");

/* Queue pairs that were announced in the ring buffer, with the time. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct cw_verbs_key);
	__type(value, __u64);
} announced_qps SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct cw_batch_key);
	__type(value, struct cw_batch);
} batches SEC(".maps");

/* Never written: what new entries are made of. They are too large for the stack. */
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

/* A chain on its way into the counters. */
struct walk {
	struct cw_slot_key key; /* what `sum` goes to */
	struct cw_post_sum sum;
	__u64 qp_address;
	__u64 next_wr;
	__u64 next_sge;
	__u64 length_bytes;
	/*
	 * 0, but the verifier does not know: what it knows of a flag, it follows through every
	 * further step of the loop.
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

/*
 * Where a walk without bpf_loop is between its rounds. Such kernels do not preempt the program of
 * a uprobe. The verifier does not follow what is in a map, which keeps its work small.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct walk);
} walks SEC(".maps");

/* post_send_more, which the recorder puts in. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} more_rounds SEC(".maps");

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
 * The counters for w->key; made if they are not there. Announcing the queue pair is left to the end
 * of the walk: inside of loops the verifier has enough to look at.
 */
static __always_inline struct cw_post_slot *slot_of(struct walk *w)
{
	struct cw_post_slot *slot = bpf_map_lookup_elem(&posts, &w->key);
	struct empty *nothing;
	__u32 zero = 0;

	if (slot)
		return slot;
	nothing = bpf_map_lookup_elem(&empty, &zero);
	if (!nothing)
		return NULL;
	bpf_map_update_elem(&posts, &w->key, &nothing->slot, BPF_NOEXIST);
	w->new_slots = 1 + w->zero;
	slot = bpf_map_lookup_elem(&posts, &w->key);
	if (slot)
		slot->first_ns = bpf_ktime_get_ns();
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

/* Moves the sum so far into the slot of its class. */
static __always_inline void flush(struct walk *w, bool fault, bool truncated)
{
	struct cw_post_slot *slot = slot_of(w);

	if (slot) {
		slot->posts += w->new_post;
		slot->fault_posts += fault;
		slot->truncated_posts += truncated;
		add_all(slot, &w->sum, w->key.post_class);
	} else {
		w->lost = 1 + w->zero;
	}
}

/* Reads the next request of the chain, without its gather list. False: it could not be read. */
static __always_inline bool read_request(struct walk *w)
{
	struct cw_ibv_send_wr wr;

	if (bpf_probe_read_user(&wr, sizeof(wr), (void *)(w->next_wr + CW_IBV_SEND_WR_NEXT))) {
		w->fault = 1 + w->zero;
		return false;
	}
	w->post_class = cw_post_class_of_opcode(wr.opcode);
	if (w->post_class != w->key.post_class) {
		if (w->key.post_class != NO_CLASS) {
			flush(w, false, false);
			w->new_post = w->zero;
			__builtin_memset(&w->sum, 0, sizeof(w->sum));
		}
		w->key.post_class = w->post_class;
	}
	w->next_wr = wr.next;
	w->next_sge = wr.sg_list;
	/* The list's address may be stale where num_sge is 0. */
	w->entries_left = wr.num_sge > 0 && cw_class_has_payload(w->post_class) ? wr.num_sge : 0;
	w->length_bytes = 0;
	return true;
}

static __always_inline bool read_entry(struct walk *w)
{
	struct cw_ibv_sge sge;

	if (bpf_probe_read_user(&sge, sizeof(sge), (void *)w->next_sge)) {
		w->fault = 1 + w->zero;
		return false;
	}
	w->length_bytes += sge.length;
	w->next_sge += sizeof(sge);
	w->entries_left--;
	return true;
}

/* 1 if the walk is over. */
static __always_inline long walk_step(struct walk *w)
{
	if (!w->in_request) {
		if (!w->next_wr || !read_request(w))
			return 1;
		w->in_request = 1 + w->zero;
	}
	if (w->entries_left && !read_entry(w))
		return 1;
	if (!w->entries_left) {
		cw_count_wr(&w->sum, w->post_class, w->length_bytes);
		w->in_request = w->zero;
	}
	return 0;
}

static long walk_callback(__u32 step, void *walk)
{
	(void)step;
	return walk_step(walk);
}

static __always_inline bool begin_walk(struct walk *w, struct pt_regs *ctx)
{
	__u64 qp_address = PT_REGS_PARM1(ctx);
	__u64 id = bpf_get_current_pid_tgid();
	__u32 tgid = id >> 32;
	struct cw_epoch_key epoch_key = {.tgid = tgid};
	struct cw_ibv_qp qp;
	__u32 *epoch;

	if (!tgid_wanted(tgid))
		return false;
	if (bpf_probe_read_user(&qp, sizeof(qp), (void *)qp_address)) {
		count_loss(CW_LOSS_POST_FAULT);
		return false;
	}
	epoch_key.qpn = qp.qp_num;
	epoch = bpf_map_lookup_elem(&post_epochs, &epoch_key);
	/* A hash key: what lies on the stack before would make another queue pair of each post. */
	__builtin_memset(&w->key, 0, sizeof(w->key));
	w->key.qp.context = qp.context;
	w->key.qp.tgid = tgid;
	w->key.qp.qpn = qp.qp_num;
	w->key.qp.epoch = epoch ? *epoch : 0;
	w->key.tid = (__u32)id;
	w->zero = id >> 63; /* there are not that many processes */
	__builtin_memset(&w->sum, 0, sizeof(w->sum));
	w->key.post_class = NO_CLASS + w->zero;
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

static __always_inline void finish_walk(struct walk *w)
{
	if (w->lost)
		count_loss(CW_LOSS_POST_TABLE);
	if (w->new_slots)
		announce(w);
}

static __always_inline void end_walk(struct walk *w)
{
	bool truncated = !w->fault && (w->in_request || w->next_wr);

	if (w->fault)
		count_loss(CW_LOSS_POST_FAULT);
	if (truncated)
		count_loss(CW_LOSS_POST_TRUNCATED);
	if (w->key.post_class == NO_CLASS) {
		if (!w->fault)
			return; /* an empty chain */
		w->key.post_class = CW_POST_OTHER;
	}
	flush(w, w->fault, truncated);
	finish_walk(w);
}

static __always_inline struct walk *walk_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&walks, &zero);
}

static __always_inline int walk_a_round(struct pt_regs *ctx, struct walk *w)
{
	int i;

	for (i = 0; i < ROUND_STEPS; i++) {
		if (walk_step(w)) {
			end_walk(w);
			return 0;
		}
	}
	if (w->rounds_left && (w->in_request || w->next_wr)) {
		w->rounds_left--;
		bpf_tail_call(ctx, &more_rounds, 0);
	}
	end_walk(w);
	return 0;
}

/* int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr) */
SEC("uprobe")
int post_send_bounded(struct pt_regs *ctx)
{
	struct walk *w = walk_here();

	if (!w || !begin_walk(w, ctx))
		return 0;
	w->next_wr = PT_REGS_PARM2(ctx);
	w->rounds_left = MORE_ROUNDS;
	return walk_a_round(ctx, w);
}

SEC("uprobe")
int post_send_more(struct pt_regs *ctx)
{
	struct walk *w = walk_here();

	return w ? walk_a_round(ctx, w) : 0;
}

/*
 * The same where the kernel has bpf_loop (5.17): the verifier looks at one step only. The time of
 * the last post is to the tick: the exact clock costs a tenth of the whole.
 */
SEC("uprobe")
int post_send_loop(struct pt_regs *ctx)
{
	struct walk w;

	if (!begin_walk(&w, ctx))
		return 0;
	w.next_wr = PT_REGS_PARM2(ctx);
	/* Most chains are one request with one entry: no callback for them. */
	if (!walk_step(&w) && (w.in_request || w.next_wr))
		bpf_loop(LOOP_STEPS, walk_callback, &w, 0);
	end_walk(&w);
	return 0;
}

/* ---- ibv_wr_*: requests are built one call after the other, by one thread that holds the QP ----
 */

static __always_inline struct cw_batch *batch_of(struct pt_regs *ctx, bool create)
{
	struct cw_batch_key key = {
		.qp_address = PT_REGS_PARM1(ctx),
		.tgid = bpf_get_current_pid_tgid() >> 32,
	};
	struct cw_batch *batch = bpf_map_lookup_elem(&batches, &key);
	struct empty *nothing;
	__u32 zero = 0;

	if (batch || !create || !tgid_wanted(key.tgid))
		return batch;
	nothing = bpf_map_lookup_elem(&empty, &zero);
	if (nothing)
		bpf_map_update_elem(&batches, &key, &nothing->batch, BPF_NOEXIST);
	batch = bpf_map_lookup_elem(&batches, &key);
	if (!batch)
		count_loss(CW_LOSS_POST_TABLE);
	return batch;
}

static __always_inline void finish_request(struct cw_batch *batch)
{
	__u32 post_class = batch->post_class;

	if (!batch->building || post_class >= CW_POST_CLASSES)
		return;
	batch->building = 0;
	if (!(batch->used_classes & (1u << post_class))) {
		batch->used_classes |= 1u << post_class;
		__builtin_memset(&batch->classes[post_class], 0, sizeof(batch->classes[0]));
	}
	cw_count_wr(&batch->classes[post_class], post_class, batch->length_bytes);
}

static __always_inline int begin_request(struct pt_regs *ctx, __u32 post_class, __u64 length_bytes)
{
	struct cw_batch *batch = batch_of(ctx, true);

	if (!batch)
		return 0;
	finish_request(batch);
	batch->post_class = post_class;
	batch->length_bytes = length_bytes;
	batch->building = 1;
	return 0;
}

#define REQUEST(name, post_class, length_bytes)                                                    \
	SEC("uprobe") int name(struct pt_regs *ctx)                                                \
	{                                                                                          \
		return begin_request(ctx, post_class, length_bytes);                               \
	}

REQUEST(wr_atomic, CW_POST_ATOMIC, 0)
REQUEST(wr_local, CW_POST_LOCAL, 0)
REQUEST(wr_read, CW_POST_READ, 0)
REQUEST(wr_write, CW_POST_WRITE, 0)
REQUEST(wr_write_imm, CW_POST_WRITE_IMM, 0)
REQUEST(wr_send, CW_POST_SEND, 0)
REQUEST(wr_send_imm, CW_POST_SEND_IMM, 0)
REQUEST(wr_send_inv, CW_POST_SEND_INV, 0)
REQUEST(wr_send_tso, CW_POST_OTHER, 0)
/* Its 8 bytes are an argument, not a gather entry. */
REQUEST(wr_atomic_write, CW_POST_ATOMIC_WRITE, CW_ATOMIC_BYTES)
REQUEST(wr_flush, CW_POST_FLUSH, 0)

/* A setter gives the whole payload of the request; a second one would replace it. */
static __always_inline int set_length(struct pt_regs *ctx, __u64 length_bytes)
{
	struct cw_batch *batch = batch_of(ctx, false);

	if (batch && batch->building)
		batch->length_bytes = length_bytes;
	return 0;
}

/* void wr_set_inline_data(struct ibv_qp_ex *qp, void *addr, size_t length) */
SEC("uprobe")
int set_inline(struct pt_regs *ctx)
{
	return set_length(ctx, PT_REGS_PARM3(ctx));
}

/* void wr_set_sge(struct ibv_qp_ex *qp, uint32_t lkey, uint64_t addr, uint32_t length) */
SEC("uprobe")
int set_sge(struct pt_regs *ctx)
{
	return set_length(ctx, (__u32)PT_REGS_PARM4(ctx));
}

/* Both kinds of entry are 16 bytes; the length of a data buffer is 8 of them, of an sge 4. */
static __always_inline int set_list(struct pt_regs *ctx, bool inline_data)
{
	struct cw_batch *batch = batch_of(ctx, false);
	__u64 n = PT_REGS_PARM2(ctx);
	__u64 at = PT_REGS_PARM3(ctx);
	__u64 length_bytes = 0;
	__u32 i;

	if (!batch || !batch->building)
		return 0;
	for (i = 0; i < MAX_LIST_ENTRIES && i < n; i++) {
		struct cw_ibv_data_buf buf;

		if (bpf_probe_read_user(&buf, sizeof(buf), (void *)(at + i * sizeof(buf)))) {
			batch->faults = 1;
			break;
		}
		length_bytes += inline_data ? buf.length : (__u32)buf.length;
	}
	if (n > MAX_LIST_ENTRIES)
		batch->truncated = 1;
	batch->length_bytes = length_bytes;
	return 0;
}

/* void wr_set_inline_data_list(struct ibv_qp_ex *qp, size_t num_buf, struct ibv_data_buf *list) */
SEC("uprobe")
int set_inline_list(struct pt_regs *ctx)
{
	return set_list(ctx, true);
}

/* void wr_set_sge_list(struct ibv_qp_ex *qp, size_t num_sge, struct ibv_sge *list) */
SEC("uprobe")
int set_sge_list(struct pt_regs *ctx)
{
	return set_list(ctx, false);
}

static __always_inline void empty_batch(struct cw_batch *batch)
{
	batch->building = 0;
	batch->used_classes = 0;
	batch->faults = 0;
	batch->truncated = 0;
}

/* int wr_complete(struct ibv_qp_ex *qp) */
SEC("uprobe")
int wr_complete(struct pt_regs *ctx)
{
	struct cw_batch *batch = batch_of(ctx, false);
	struct walk w;
	__u32 i;

	if (!batch)
		return 0;
	finish_request(batch);
	if (!batch->used_classes)
		return 0;
	if (!begin_walk(&w, ctx))
		goto out;
	if (batch->faults)
		count_loss(CW_LOSS_POST_FAULT);
	if (batch->truncated)
		count_loss(CW_LOSS_POST_TRUNCATED);
	for (i = 0; i < CW_POST_CLASSES; i++) {
		struct cw_post_slot *slot;

		if (!(batch->used_classes & (1u << i)))
			continue;
		w.key.post_class = i;
		slot = slot_of(&w);
		if (!slot) {
			w.lost = 1 + w.zero;
			continue;
		}
		if (w.new_post) {
			slot->posts += 1;
			slot->fault_posts += batch->faults;
			slot->truncated_posts += batch->truncated;
			w.new_post = 0;
		}
		add_all(slot, &batch->classes[i], i);
	}
	finish_walk(&w);
out:
	empty_batch(batch);
	return 0;
}

/* void wr_abort(struct ibv_qp_ex *qp) */
SEC("uprobe")
int wr_abort(struct pt_regs *ctx)
{
	struct cw_batch *batch = batch_of(ctx, false);
	struct cw_post_slot *slot;
	struct walk w;
	__u64 n = 0;
	__u32 i;

	if (!batch)
		return 0;
	finish_request(batch);
	for (i = 0; i < CW_POST_CLASSES; i++)
		if (batch->used_classes & (1u << i))
			n += batch->classes[i].counters.wrs;
	empty_batch(batch);
	if (!n || !begin_walk(&w, ctx))
		return 0;
	w.key.post_class = CW_POST_OTHER;
	slot = slot_of(&w);
	if (slot) {
		slot->aborted_wrs += n;
	} else {
		w.lost = 1;
	}
	finish_walk(&w);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
