/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The records of a launch: one from the first walk for every launch, and more from two further
 * walks for a new shape.
 */
#ifndef COLLWIRE_NCCL_LAUNCHES_H
#define COLLWIRE_NCCL_LAUNCHES_H

#include "nccl_early_posts.h"
#include "nccl_look.h"
#include "collwire/nccl_connection_records.h"
#include "collwire/nccl_launch_records.h"

static __always_inline void emit_task(struct ops_walk *w, const __u8 *op, const __u8 *task)
{
	struct cw_nccl_shape_task *r = RESERVE_RECORD_IN(
		bulk_events, cw_nccl_shape_task, CW_KIND_NCCL_SHAPE_TASK, CW_LOSS_NCCL_SHAPE);

	if (!r)
		return;
	r->comm = w->comm;
	r->shape = w->hash;
	r->tgid = w->tgid;
	r->index = w->n_tasks - 1;
	r->algorithm = BYTE_FROM_COPY(op, op_algorithm, CW_NCCL_ALGORITHM_UNKNOWN);
	r->protocol = FROM_COPY(__u8, op, op_protocol);
	if (is_p2p(op)) {
		r->func = FROM_COPY(__u8, task, p2p_func);
		r->count = FROM_COPY(__u64, task, p2p_count);
		r->bytes = FROM_COPY(__u64, task, p2p_bytes);
		r->datatype = FROM_COPY(__u8, task, p2p_datatype);
		r->root = FROM_COPY(__s32, task, p2p_root);
		READ_FIELD(r->n_channels, w->task, p2p_n_channels);
	} else {
		r->func = FROM_COPY(__u8, task, coll_func);
		r->count = FROM_COPY(__u64, task, coll_count);
		r->datatype = FROM_COPY(__u8, task, coll_datatype);
		r->root = FROM_COPY(__s32, task, coll_root);
		r->reduction = FROM_COPY(__s32, task, coll_op);
		r->bytes = r->count * cw_nccl_type_bytes(r->datatype);
		READ_FIELD(r->n_channels, w->task, coll_n_channels);
	}
	r->api_func = BYTE_FROM_COPY(op, op_coll_api, r->func);
	submit_bulk(r);
}

/* A task without an operation of its own. */
static __always_inline void emit_listed(struct ops_walk *w, const __u8 *task)
{
	struct cw_nccl_shape_task *r = RESERVE_RECORD_IN(
		bulk_events, cw_nccl_shape_task, CW_KIND_NCCL_SHAPE_TASK, CW_LOSS_NCCL_SHAPE);

	if (!r)
		return;
	r->comm = w->comm;
	r->shape = w->hash;
	r->tgid = w->tgid;
	r->index = w->n_tasks - 1;
	r->algorithm = CW_NCCL_ALGORITHM_UNKNOWN;
	r->protocol = CW_NCCL_PROTOCOL_UNKNOWN;
	if (is_listed_bcast(w)) {
		r->func = CW_NCCL_BROADCAST;
		r->count = r->bytes = FROM_COPY(__u64, task, bcast_bytes);
		r->root = FROM_COPY(__s32, task, bcast_root);
		r->algorithm = CW_NCCL_RING;
		r->protocol = w->protocol;
		r->n_channels = w->n_channels;
	} else if (is_listed_p2p(w)) {
		r->func = FROM_COPY(__u8, task, p2p_func);
		r->count = FROM_COPY(__u64, task, p2p_count);
		r->bytes = FROM_COPY(__u64, task, p2p_bytes);
		r->datatype = FROM_COPY(__u8, task, p2p_datatype);
		r->root = FROM_COPY(__s32, task, p2p_root);
		READ_FIELD(r->n_channels, w->task, p2p_n_channels);
	} else {
		r->func = FROM_COPY(__u8, task, coll_func);
		r->count = FROM_COPY(__u64, task, coll_count);
		r->datatype = FROM_COPY(__u8, task, coll_datatype);
		r->root = FROM_COPY(__s32, task, coll_root);
		r->reduction = FROM_COPY(__s32, task, coll_op);
		r->bytes = r->count * cw_nccl_type_bytes(r->datatype);
		READ_FIELD(r->algorithm, w->task, coll_algorithm);
		READ_FIELD(r->protocol, w->task, coll_protocol);
		READ_FIELD(r->n_channels, w->task, coll_n_channels);
	}
	r->api_func = is_listed_p2p(w) ? BYTE_FROM_COPY(task, p2p_api, r->func) : r->func;
	submit_bulk(r);
}

static __always_inline void copy_op(struct ops_walk *w, const __u8 *op, struct cw_nccl_op *into)
{
	__u32 pattern = FROM_COPY(__u8, op, op_pattern);

	into->connection = FROM_COPY(__u64, op, op_connection);
	into->nbytes = FROM_COPY(__u64, op, op_nbytes);
	into->chunk_bytes = chunk_bytes_of(op);
	into->slice_bytes = SIZE_FROM_COPY(op, op_slice_size);
	into->loop_bytes = SIZE_FROM_COPY(op, op_loop_size);
	into->loop_offset_bytes = SIZE_FROM_COPY(op, op_loop_offset);
	into->channel_bytes = SIZE_FROM_COPY(op, op_channel_size);
	into->nsteps = FROM_COPY(__u32, op, op_nsteps);
	into->task = HAS(op_task) && !w->task ? CW_NCCL_NO_TASK : w->n_tasks - 1;
	into->root = FROM_COPY(__s32, op, op_root);
	into->peer = -1;
	READ_FIELD(into->peer, next_op(w), op_peer);
	into->channel = FROM_COPY(__u8, op, op_channel);
	into->func = BYTE_FROM_COPY(op, op_coll, CW_NCCL_FUNC_UNKNOWN);
	into->pattern = layout.patterns[pattern & (CW_NCCL_PATTERN_NUMBERS - 1)];
	into->protocol = FROM_COPY(__u8, op, op_protocol);
	into->algorithm = BYTE_FROM_COPY(op, op_algorithm, CW_NCCL_ALGORITHM_UNKNOWN);
	into->slice_steps = FROM_COPY(__u8, op, op_slice_steps);
	into->chunk_steps = FROM_COPY(__u8, op, op_chunk_steps);
	into->datatype = FROM_COPY(__u8, op, op_dtype);
	into->reduction = FROM_COPY(__u8, op, op_red_op);
	into->registered = BYTE_FROM_COPY(op, op_reg, 0);
	into->flags = w->other_proxy ? CW_NCCL_OP_OTHER_PROXY : 0;
	into->proxy_index = w->proxy_index;
	READ_FIELD(into->ring_index,
		   w->comm + layout.comm_channels + (__u64)into->channel * layout.channel_size,
		   channel_ring_index);
}

/* One operation a step: its record is emitted whole. 1: the walk is over. */
static __always_inline long emit_step(struct ops_walk *w)
{
	struct cw_nccl_shape_ops *r;
	struct cw_nccl_comm_entry *entry = entry_of(w);
	__u8 op[CW_NCCL_OP_HEAD_BYTES] COPIED, task[CW_NCCL_TASK_BYTES] COPIED;
	enum listed listed;

	if (!entry)
		return 1;
	if (!w->ops) {
		if (next_proxy(w, entry, PROXY_LISTS_IN(op)))
			return 0;
		listed = next_listed(w, task);
		if (listed == LISTS_OVER)
			return 1;
		if (listed == NEXT_TASK && is_passed_over(w, entry, task)) {
			step_over_listed(w, task);
		} else if (listed == NEXT_TASK) {
			w->n_tasks++;
			emit_listed(w, task);
			step_over_listed(w, task);
		}
		return 0;
	}
	if (!read_op(w, op, sizeof(op)))
		return 0;
	if (HAS(op_task) && is_new_task(w, task_of_next(w))) {
		read_task(w, task);
		emit_task(w, op, task);
	}
	if (HAS(op_task) && !w->task) {
		READ_FIELD(w->n_channels, next_op(w), op_n_channels);
		w->protocol = FROM_COPY(__u8, op, op_protocol);
	}
	r = RESERVE_RECORD_IN(bulk_events, cw_nccl_shape_ops, CW_KIND_NCCL_SHAPE_OPS,
			      CW_LOSS_NCCL_SHAPE);
	if (!r) {
		w->fault = 1;
		return 1;
	}
	r->comm = w->comm;
	r->shape = w->hash;
	r->tgid = w->tgid;
	r->n_ops = w->n_all_ops;
	r->first = w->n_ops;
	r->n = 1;
	copy_op(w, op, &r->ops[0]);
	r->proxy_indices[0] = w->proxy_index;
	submit_bulk(r);
	w->n_ops++;
	step_over(w, FROM_COPY(__s32, op, op_next));
	return 0;
}

__weak __noinline long emit_any_step(struct ops_walk *w)
{
	return w ? emit_step(w) : 1;
}

static long emit_callback(__u32 step, void *w)
{
	(void)step;
	return emit_any_step(w) != 0;
}

/* The connections of the operations that were not emitted before. 1: the walk is over. */
static __always_inline long connect_step(struct ops_walk *w)
{
	struct cw_nccl_comm_entry *entry = entry_of(w);
	enum connection_left left = NOTHING_LEFT;
	struct nccl_proxy_ops lists[PROXY_LISTS];
	__u64 connection = 0;
	__s32 next = -1;

	if (!entry)
		return 1;
	if (!w->ops)
		return next_proxy(w, entry, lists) ? 0 : 1;
	READ_FIELD(connection, next_op(w), op_connection);
	if (!w->other_proxy)
		left = note_connection(w->comm, entry, connection, w->bias, w->first_endpoint);
	if (left == MORE_ENDPOINTS) {
		w->first_endpoint += CW_NCCL_ENDPOINTS;
		return 0;
	}
	if (left == UNREAD)
		w->unread = 1;
	w->first_endpoint = 0;
	READ_FIELD(next, next_op(w), op_next);
	step_over(w, next);
	return 0;
}

__weak __noinline long connect_any_step(struct ops_walk *w)
{
	return w ? connect_step(w) : 1;
}

static long connect_callback(__u32 step, void *w)
{
	(void)step;
	return connect_any_step(w) != 0;
}

/*
 * All are read: the compiler turns a choice into an address that the verifier refuses. Not inlined:
 * its stack is free again afterwards.
 */
static __noinline __u64 plan_of(struct pt_regs *ctx)
{
	volatile __u64 kept[8] = {};

	kept[CW_NCCL_RBX] = ctx->bx;
	kept[CW_NCCL_RBP] = ctx->bp;
	kept[CW_NCCL_R12] = ctx->r12;
	kept[CW_NCCL_R13] = ctx->r13;
	kept[CW_NCCL_R14] = ctx->r14;
	kept[CW_NCCL_R15] = ctx->r15;
	return kept[layout.plan_register & 7];
}

/* Not inlined: its stack is free again afterwards. */
static __noinline long first_proxy(struct ops_walk *w, const struct cw_nccl_comm_entry *entry)
{
	struct nccl_proxy_ops lists[PROXY_LISTS];

	return next_proxy(w, entry, lists);
}

/* NULL: no record to emit. */
static __noinline struct cw_nccl_comm_entry *begin_launch(struct ops_walk *w, struct pt_regs *ctx,
							  bool for_proxies)
{
	struct cw_nccl_comm_entry *entry;
	__u64 id = bpf_get_current_pid_tgid();
	/* Taken first: it belongs to this launch and to no later one. */
	bool posted_early = for_proxies && has_posted_early(id);

	if (is_held() || !tgid_wanted(id >> 32))
		return NULL;
	w->comm = PT_REGS_PARM1(ctx);
	w->tgid = id >> 32;
	w->tid = (__u32)id;
	w->bias = PT_REGS_IP(ctx) - layout.proxy_start;
	w->launch_ns = bpf_ktime_get_ns();
	entry = comm_entry(w->comm);
	if (!entry) {
		if (!is_comm(w->comm))
			count_loss(CW_LOSS_NCCL_FAULT);
		return NULL;
	}
	if (!entry->proxy_ops) { /* discovered before its proxy, or that memory, existed */
		w->fault = meet_proxies(w->comm) && for_proxies;
		entry = comm_entry(w->comm);
		if (!entry)
			return NULL;
	}
	w->generation_ns = entry->generation_ns;
	w->proxy_ops = entry->proxy_ops;
	w->is_local = !for_proxies;
	w->has_p2p = 0;
	w->has_neighbours = entry->neighbours != 0;
	begin_ops(w);
	if (for_proxies) {
		w->posted_early = posted_early;
		w->n_proxies = entry->proxy_ops ? entry->n_proxies : 0;
		w->is_run = entry->is_run;
		w->first_proxy = entry->proxies[0];
		w->own_proxy = entry->own;
		first_proxy(w, entry);
	}
	return entry;
}

/* Some operations may be left unread. */
static __always_inline bool is_truncated(const struct ops_walk *w)
{
	return !w->over || w->posted_early || w->n_proxies > CW_NCCL_PROXIES;
}

static __noinline long emit_launch(struct ops_walk *w, bool known)
{
	__u64 launched = 0;
	struct cw_nccl_launch *r;
	__u8 persistent = 0;

	r = RESERVE_RECORD_OF(bulk_events, cw_nccl_launch, CW_KIND_NCCL_LAUNCH, CW_LOSS_NCCL_LAUNCH,
			      w->launch_ns);
	if (!r)
		return 1;
	r->comm = w->comm;
	r->tgid = w->tgid;
	r->tid = w->tid;
	r->plan = w->plan;
	r->shape = known ? w->hash : 0;
	if (read_launched(w->comm, &launched)) {
		/* hostStreamPlanTask counts the plan's own after its first instruction. */
		r->launched = launched + (w->is_local ? w->n_colls : 0);
		r->flags |= CW_NCCL_LAUNCH_LAUNCHED;
	}
	if (w->plan && READ_FIELD(persistent, w->plan, plan_persistent) && persistent)
		r->flags |= CW_NCCL_LAUNCH_GRAPH;
	if (w->plan)
		READ_FIELD(r->channel_mask, w->plan, plan_channel_mask);
	if (is_truncated(w))
		r->flags |= CW_NCCL_LAUNCH_TRUNCATED;
	else if (!w->n_ops && !w->fault)
		r->flags |= CW_NCCL_LAUNCH_LOCAL;
	if (w->fault)
		r->flags |= CW_NCCL_LAUNCH_FAULT;
	r->n_ops = w->n_ops;
	r->n_tasks = w->n_tasks;
	if (w->n_tasks <= CW_NCCL_LAUNCH_TASKS)
		__builtin_memcpy(r->tasks, w->tasks, sizeof(r->tasks));
	submit_bulk(r);
	return 0;
}

/*
 * Per-communicator cache of emitted shapes. It expires before `shapes` does, since the recorder may
 * have evicted them.
 */
#define SHAPES_MEANWHILE (SHAPES / 4)

static __always_inline struct cw_nccl_shape_at_hand *place_at_hand(struct cw_nccl_comm_entry *entry,
								   __u64 shape)
{
	return &entry->shapes[shape >> 32 & (CW_NCCL_SHAPES_AT_HAND - 1)];
}

/* Whether the launch's shape was emitted before; if not, it counts as emitted from now on. */
static __always_inline bool is_known_shape(struct ops_walk *w, struct cw_nccl_comm_entry *entry)
{
	struct cw_nccl_shape_key key = {.shape = w->hash, .tgid = w->tgid};
	struct cw_nccl_shape_at_hand *at_hand = place_at_hand(entry, w->hash);
	__u64 n_emitted = *(volatile __u64 *)&n_shapes;

	if (at_hand->shape == w->hash && n_emitted - at_hand->n_emitted < SHAPES_MEANWHILE)
		return true;
	at_hand->shape = w->hash;
	at_hand->n_emitted = n_emitted;
	if (bpf_map_lookup_elem(&shapes, &key))
		return true;
	__sync_fetch_and_add(&n_shapes, 1);
	bpf_map_update_elem(&shapes, &key, &w->launch_ns, BPF_ANY);
	return false;
}

static __noinline long forget_shape(struct ops_walk *w)
{
	struct cw_nccl_shape_key key = {.shape = w->hash, .tgid = w->tgid};
	struct cw_nccl_comm_entry *entry = entry_of(w);

	if (entry)
		place_at_hand(entry, w->hash)->shape = 0;
	return bpf_map_delete_elem(&shapes, &key);
}

/* For the recorder, which fetches that memory. */
static __always_inline void note_unread(struct ops_walk *w, struct cw_nccl_comm_entry *entry)
{
	if (!w->fault) {
		if (entry->n_unread)
			entry->n_unread = 0;
		return;
	}
	count_loss(CW_LOSS_NCCL_FAULT);
	if (w->unread_read)
		unread(entry, w->unread_read, w->unread_at);
	entry->n_unread++;
}

/* After the first walk: emits the launch. True: its shape is new and has to be emitted, too. */
static __noinline long end_look(struct ops_walk *w, struct cw_nccl_comm_entry *entry)
{
	if (is_truncated(w))
		count_loss(CW_LOSS_NCCL_OPS_TRUNCATED);
	note_unread(w, entry);
	w->hash = cw_nccl_mix(w->hash, w->n_ops) | 1;
	if (w->n_tasks > CW_NCCL_LAUNCH_TASKS)
		flush_tasks(w);
	emit_launch(w, w->n_ops || w->n_tasks);
	if (!(w->n_ops || w->n_tasks) || is_known_shape(w, entry))
		return false;
	w->n_all_ops = w->n_ops;
	w->n_all_tasks = w->n_tasks;
	return true;
}

static __always_inline void begin_again(struct ops_walk *w)
{
	__u64 hash = w->hash;

	begin_ops(w);
	w->hash = hash;
}

static __always_inline void end_emit(struct ops_walk *w)
{
	/* Some records were dropped: the next launch with this shape tries again. */
	if (w->n_ops != w->n_all_ops || w->n_tasks != w->n_all_tasks)
		forget_shape(w);
}

static __always_inline void end_connect(struct ops_walk *w)
{
	/* NCCL's memory may be mapped again at the next launch with this shape. */
	if (w->unread)
		forget_shape(w);
}

#endif
