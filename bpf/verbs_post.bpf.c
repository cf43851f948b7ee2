/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Work requests that programs post to their queue pairs, summed per queue pair and kind of request.
 * uprobes on the driver's post_send (chains of struct ibv_send_wr), and on the functions of the
 * ibv_wr_* calls of queue pairs that have them (a batch between start and complete). The recorder
 * finds the functions and the instructions for the probes. docs/sources/posts.md gives the cost and
 * the limits.
 *
 *
 * The only kernel structures read here are the registers and the owner's start time.
 */
#include "post_batches.h"
#include "collwire/post_records.h"

/*
 * A step of the walk reads a request with its first gather entry, or one more entry. Without
 * bpf_loop the verifier checks every step, which takes it long: so a program walks a few, and calls
 * itself for the rest. Further requests are counted as truncated.
 */
#define LOOP_STEPS  16384
#define ROUND_STEPS 4
#define MORE_ROUNDS 31 /* the kernel allows 32 */

/*
 * The state of a walk without bpf_loop between its rounds. Such kernels do not preempt the program
 * of a uprobe. The verifier does not follow values in a map, which keeps its work small.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct walk);
} walks SEC(".maps");

/* post_send_more, inserted by the recorder. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} more_rounds SEC(".maps");

/* Adds the sum so far to the slot of its class. */
static __always_inline void flush(struct walk *w, bool fault, bool truncated)
{
	struct cw_post_slot *slot = slot_of(w);

	w->sent_bytes += cw_sent_bytes(w->key.post_class, w->sum.counters.bytes);
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

/*
 * Global: the verifier checks it once, for any walk, and its callers know nothing about its effect
 * on the walk. What they know they follow through the loop, and how far depends on the compiler:
 * inlined, Linux 7.2 refused clang 18's code as too complex, but not clang 14's. Weak: the compiler
 * must not use what it knows of the return value, which the verifier does not.
 */
__weak __noinline long walk_any_step(struct walk *w)
{
	return w ? walk_step(w) : 1;
}

static long walk_callback(__u32 step, void *walk)
{
	(void)step;
	return walk_any_step(walk) != 0;
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
	count_operation(w, !w->fault && !truncated);
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
	KEEP_OWN_STACK(ctx);
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
	KEEP_OWN_STACK(ctx);
	struct walk *w = walk_here();

	return w ? walk_a_round(ctx, w) : 0;
}

/*
 * The same where the kernel has bpf_loop (5.17): the verifier checks one step only. The time of the
 * last post is to the tick: the exact clock costs a tenth of the whole.
 */
SEC("uprobe")
int post_send_loop(struct pt_regs *ctx)
{
	KEEP_OWN_STACK(ctx);
	struct walk w;

	/* Before Linux 6.3 all memory that a global function is given must have been written. */
	__builtin_memset(&w, 0, sizeof(w));
	if (!begin_walk(&w, ctx))
		return 0;
	w.next_wr = PT_REGS_PARM2(ctx);
	/* Most chains are one request with one entry: no callback for them. */
	if (!walk_any_step(&w) && (w.in_request || w.next_wr))
		bpf_loop(LOOP_STEPS, walk_callback, &w, 0);
	end_walk(&w);
	return 0;
}

/* ibv_wr_*: by one thread that holds the queue pair */

#define REQUEST(name, post_class, length_bytes)                                                    \
	SEC("uprobe") int name(struct pt_regs *ctx)                                                \
	{                                                                                          \
		KEEP_OWN_STACK(ctx);                                                               \
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

/* void wr_set_inline_data(struct ibv_qp_ex *qp, void *addr, size_t length) */
SEC("uprobe")
int set_inline(struct pt_regs *ctx)
{
	KEEP_OWN_STACK(ctx);
	return set_length(ctx, PT_REGS_PARM3(ctx));
}

/* void wr_set_sge(struct ibv_qp_ex *qp, uint32_t lkey, uint64_t addr, uint32_t length) */
SEC("uprobe")
int set_sge(struct pt_regs *ctx)
{
	KEEP_OWN_STACK(ctx);
	return set_length(ctx, (__u32)PT_REGS_PARM4(ctx));
}

/* void wr_set_inline_data_list(struct ibv_qp_ex *qp, size_t num_buf, struct ibv_data_buf *list) */
SEC("uprobe")
int set_inline_list(struct pt_regs *ctx)
{
	KEEP_OWN_STACK(ctx);
	return set_list(ctx, true);
}

/* void wr_set_sge_list(struct ibv_qp_ex *qp, size_t num_sge, struct ibv_sge *list) */
SEC("uprobe")
int set_sge_list(struct pt_regs *ctx)
{
	KEEP_OWN_STACK(ctx);
	return set_list(ctx, false);
}

/* int wr_complete(struct ibv_qp_ex *qp) */
SEC("uprobe")
int wr_complete(struct pt_regs *ctx)
{
	KEEP_OWN_STACK(ctx);
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
	KEEP_OWN_STACK(ctx);
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
