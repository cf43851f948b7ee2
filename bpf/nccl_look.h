/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The first walk over the operations that a launch gave to the proxies: it computes their shape. On
 * every launch.
 */
#ifndef COLLWIRE_NCCL_LOOK_H
#define COLLWIRE_NCCL_LOOK_H

#include "nccl_walk.h"
#include "collwire/nccl_launch_records.h"

static __always_inline struct cw_nccl_comm_entry *entry_of(struct ops_walk *w)
{
	struct cw_nccl_comm_key key = {.comm = w->comm, .tgid = w->tgid};

	return bpf_map_lookup_elem(&comms, &key);
}

/* Emits the stored tasks when there are more than the launch's record holds. */
static __always_inline void flush_tasks(struct ops_walk *w)
{
	struct cw_nccl_launch_tasks *r;
	__u32 n = w->n_kept;

	r = RESERVE_RECORD_IN(bulk_events, cw_nccl_launch_tasks, CW_KIND_NCCL_LAUNCH_TASKS,
			      CW_LOSS_NCCL_LAUNCH);
	if (!r)
		return;
	r->comm = w->comm;
	r->plan = w->plan;
	r->launch_ns = w->launch_ns;
	r->tgid = w->tgid;
	r->first = w->n_tasks - n;
	r->n = n;
	__builtin_memcpy(r->tasks, w->tasks, sizeof(r->tasks));
	submit_bulk(r);
}

static __always_inline void keep_task(struct ops_walk *w, __u32 arguments_hash)
{
	__u32 i = w->n_kept;

	if (i >= CW_NCCL_MORE_TASKS) {
		w->n_tasks--; /* the new one is not stored yet */
		flush_tasks(w);
		w->n_tasks++;
		i = 0;
	}
	w->tasks[i & (CW_NCCL_MORE_TASKS - 1)].arguments_hash = arguments_hash;
	w->tasks[i & (CW_NCCL_MORE_TASKS - 1)].task = (__u32)w->task;
	w->n_kept = i + 1;
}

/* `task` and `lists` may be the same memory. */
static __always_inline long look_at_lists(struct ops_walk *w, __u8 *task,
					  struct nccl_proxy_ops *lists)
{
	struct cw_nccl_comm_entry *entry;
	enum listed listed;

	/* Most have one list, or a run of lists: the communicator is not looked up again. */
	entry = w->proxy < w->n_proxies && !w->is_run ? entry_of(w) : NULL;
	if (next_proxy(w, entry, lists))
		return 0;
	listed = next_listed(w, task);
	if (listed == LISTS_OVER) {
		w->over = 1;
		return 1;
	}
	if (listed == NEXT_TASK && listed_queue(w) == QUEUE_NEIGHBOURS)
		entry = entry_of(w);
	if (listed == NEXT_TASK && is_passed_over(w, entry, task)) {
		step_over_listed(w, task);
	} else if (listed == NEXT_TASK) {
		w->n_tasks++;
		if (w->is_local && w->queue == QUEUE_COLLS + 1)
			w->n_colls++;
		w->hash = mix_listed(w, task);
		keep_task(w, hash_of_listed(w, task));
		step_over_listed(w, task);
	}
	return 0;
}

static __always_inline void look_at_task(struct ops_walk *w, __u8 *task, bool p2p)
{
	read_task(w, task);
	w->hash = mix_task(w->hash, task, p2p);
	keep_task(w, hash_of_task(task, p2p));
}

struct task_place {
	__u8 bytes[CW_NCCL_TASK_BYTES];
};

/* Global: the verifier checks it once, and not in each turn of the loop over a window. */
__weak __noinline long look_at_any_task(struct ops_walk *w, struct task_place *task, __u32 p2p)
{
	if (w && task)
		look_at_task(w, task->bytes, p2p);
	return 0;
}

enum task_check {
	TASK_CHECKED_HERE, /* where a global function takes no pointers (before Linux 5.12) */
	TASK_CHECKED_ONCE,
};

/* `task`: where its task is read, which may be where the operation is. */
static __always_inline void look_at_op(struct ops_walk *w, const __u8 *op, __u8 *task,
				       enum task_check check)
{
	__u64 hash = hash_of_op(op);
	__s32 next = FROM_COPY(__s32, op, op_next);

	if (HAS(op_task) && is_new_task(w, FROM_COPY(__u64, op, op_task))) {
		if (check == TASK_CHECKED_ONCE)
			look_at_any_task(w, (struct task_place *)task, is_p2p(op));
		else
			look_at_task(w, task, is_p2p(op));
	}
	w->hash = cw_nccl_mix(w->hash, hash);
	w->has_p2p |= is_p2p(op);
	w->n_ops++;
	step_over(w, next);
}

static __always_inline void look_at_next_op(struct ops_walk *w, __u8 *copy, enum task_check check)
{
	if (read_op(w, copy, CW_NCCL_OP_BYTES))
		look_at_op(w, copy, copy, check);
}

/* If only a few are adjacent, the rest of the list is read one by one. */
static __always_inline void look_through_window(struct ops_walk *w, enum task_check check)
{
	struct window_place place = {};
	struct ops_window *window = read_window(w, &place);
	int i = 0;

	if (window) {
		for (; i < WINDOW_OPS && w->ops; i++) {
			__u8 *op = op_in_window(w, window, &place);

			if (!op)
				break;
			look_at_op(w, op, op, check);
		}
		leave_window(window);
	}
	if (i < 2)
		w->is_long = 0;
}

/*
 * As in verbs_post.bpf.c: global, so that the verifier checks each once. Four of them, as the stack
 * is as deep as the deepest.
 */
__weak __noinline long look_any_op(struct ops_walk *w)
{
	__u8 copy[CW_NCCL_OP_BYTES] COPIED;

	if (w)
		look_at_next_op(w, copy, TASK_CHECKED_ONCE);
	return 0;
}

__weak __noinline long look_any_list(struct ops_walk *w)
{
	__u8 copy[PROXY_LISTS * sizeof(struct nccl_proxy_ops)] COPIED;

	return w ? look_at_lists(w, copy, PROXY_LISTS_IN(copy)) : 1;
}

__weak __noinline long look_any_window(struct ops_walk *w)
{
	if (w)
		look_through_window(w, TASK_CHECKED_ONCE);
	return 0;
}

__weak __noinline long skip_any_lists(struct ops_walk *w)
{
	if (w) {
		struct nccl_proxy_ops lists[PROXY_LISTS];

		skip_empty_lists(w);
		next_proxy(w, NULL, lists);
	}
	return 0;
}

static long look_callback(__u32 step, void *context)
{
	struct ops_walk *w = context;

	(void)step;
	if (has_lists_to_skip(w))
		skip_any_lists(w);
	else if (w->ops && w->is_long)
		look_any_window(w);
	else if (w->ops)
		look_any_op(w);
	else
		return look_any_list(w) != 0;
	return 0;
}

#endif
