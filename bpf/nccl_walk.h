/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The operations that a launch gives to the proxies: NCCL's lists, read at the entry of
 * ncclProxyStart. proxyOps has one list for each proxy: pool, first and last index in it. One walk
 * computes the shape of the launch; two more emit a new shape and its connections.
 */
#ifndef COLLWIRE_NCCL_WALK_H
#define COLLWIRE_NCCL_WALK_H

#include "nccl_copies.h"
#include "collwire/nccl_launch_records.h"

/* struct ncclProxyOps: the same in 2.18 to 2.32. */
struct nccl_proxy_ops {
	__u64 pool;
	__u64 reserved;
	__s32 count;
	__s32 free_op;
	__s32 next_ops;
	__s32 next_ops_end;
};

#define MAX_STEPS 8192 /* of a walk: operations plus entries */
#define SHAPES	  16384

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, SHAPES);
	__type(key, struct cw_nccl_shape_key);
	__type(value, __u64);
} shapes SEC(".maps");

__u64 n_shapes; /* emitted */

/*
 * Adjacent operations are read together. Reading user memory costs a program about the same for
 * eight of them as for one: 25 ns, or 90 ns where kernel calls are expensive (retpolines, safe
 * returns). NCCL takes operations from a list of free ones, in the order of their addresses at
 * first, and in the opposite order after each use.
 */
#define WINDOW_OPS     8
#define WINDOW_BYTES   2048
#define OPS_WORTH_IT   2 /* in a list */
#define LISTS_WORTH_IT 4

struct ops_window {
	__u64 users;
	__u64 words[WINDOW_BYTES / 8];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ops_window);
} ops_windows SEC(".maps");

/* The kernel plan's own lists of tasks. */
enum task_queue {
	QUEUE_COLLS,
	QUEUE_P2PS,
	QUEUE_BCASTS,
	QUEUE_NEIGHBOURS, /* QUEUE_P2PS, with operations: those to ranks of the node, which have
			     none */
	QUEUES,
};

/* On the stack of the program that walks, with 512 bytes for all frames: no holes. */
struct ops_walk {
	__u64 comm;
	__u64 plan;
	__u64 bias;
	__u64 generation_ns;
	__u64 launch_ns;
	__u64 proxy_ops;
	__u64 ops; /* of the current pool; 0: go to the next one */
	__u64 hash;
	__u64 task; /* of the last operation read */
	__u64 unread_at;
	__u64 listed; /* next task of the plan's own list; 0: the next list is due */
	__s32 next;
	__s32 last;
	__u32 tgid;
	__u32 tid;
	__u32 n_proxies;
	__u32 first_proxy;
	__u32 own_proxy;
	__u32 proxy_index;
	union {
		__u32 in_list; /* operations left from the next one on, as NCCL says */
		__u32 n_colls; /* in a launch without a network part */
	};
	__u32 n_ops;
	__u32 n_tasks;
	__u32 n_all_ops; /* counted by the first walk */
	__u32 n_all_tasks;
	__u32 n_channels;     /* of the last operation without a task */
	__u16 proxy;	      /* index of the next one in the communicator's list */
	__u16 first_endpoint; /* to emit next */
	__u8 protocol;	      /* of the last operation without a task */
	__u8 n_kept;	      /* in tasks */
	__u8 other_proxy;
	__u8 queue; /* enum task_queue: the next one */
	__u8 fault;
	__u8 unread;	   /* a connection */
	__u8 posted_early; /* operations that no list contains any more */
	__u8 over;
	__u8 is_long;	   /* the list */
	__u8 descends;	   /* the list, in its addresses */
	__u8 is_run : 1;   /* of proxies */
	__u8 is_local : 1; /* from hostStreamPlanTask */
	__u8 has_p2p : 1;  /* among its operations */
	__u8 has_neighbours : 1;
	__u8 unread_read; /* enum cw_nccl_read: the last that failed, at unread_at */
	struct cw_nccl_task_ref tasks[CW_NCCL_MORE_TASKS];
};

_Static_assert(sizeof(struct ops_walk) == 192, "six steps of a frame's stack");

static __always_inline void begin_ops(struct ops_walk *w)
{
	w->ops = 0;
	w->hash = w->generation_ns;
	w->task = 0;
	w->proxy = 0;
	w->n_ops = 0;
	w->n_tasks = 0;
	w->n_kept = 0;
	w->n_colls = 0;
	w->over = 0;
	w->queue = 0;
	w->listed = 0;
}

static __always_inline void not_read(struct ops_walk *w, __u8 read, __u64 address)
{
	w->fault = 1;
	w->unread_read = read;
	w->unread_at = address;
}

static __always_inline bool has_ops(const struct nccl_proxy_ops *list)
{
	return list->pool && list->next_ops >= 0;
}

#define PROXY_LISTS 2 /* that are read at once */

/* An array of bytes that has room for them. */
#define PROXY_LISTS_IN(bytes)                                                                      \
	({                                                                                         \
		_Static_assert(sizeof(bytes) >= PROXY_LISTS * sizeof(struct nccl_proxy_ops) &&     \
				       sizeof(bytes) != sizeof(void *),                            \
			       "room for two lists");                                              \
		(struct nccl_proxy_ops *)(bytes);                                                  \
	})

/*
 * Goes to the next proxy; in a run also over the one after it, if that has an empty list. `entry`
 * may be NULL in a run, `lists` have room for PROXY_LISTS. False: no more proxies.
 */
static __always_inline bool next_proxy(struct ops_walk *w, const struct cw_nccl_comm_entry *entry,
				       struct nccl_proxy_ops *lists)
{
	__u32 i = w->proxy, index, n = 1;
	long failed;
	__u64 at;

	if (i >= w->n_proxies || i >= CW_NCCL_PROXIES)
		return false;
	w->proxy = i + 1;
	if (w->is_run) {
		index = w->first_proxy + i;
		if (i + 1 < w->n_proxies && i + 1 < CW_NCCL_PROXIES)
			n = 2;
	} else if (entry) {
		/* The verifier may track the bounds of a copy only. */
		barrier_var(i);
		index = entry->proxies[i & (CW_NCCL_PROXIES - 1)];
	} else {
		return false;
	}
	w->proxy_index = index;
	w->other_proxy = index != w->own_proxy;
	at = w->proxy_ops + (__u64)index * sizeof(*lists);
	failed = bpf_probe_read_user(lists, n * sizeof(*lists), (void *)at);
	if (failed && n == 2) { /* the other one may be in another page */
		n = 1;
		failed = bpf_probe_read_user(lists, sizeof(*lists), (void *)at);
	}
	if (failed || fails_on_purpose(CW_NCCL_READ_LISTS)) {
		not_read(w, CW_NCCL_READ_LISTS, at);
		return true;
	}
	if (has_ops(&lists[0])) {
		w->ops = lists[0].pool + layout.pool_ops;
		w->next = lists[0].next_ops;
		w->last = lists[0].next_ops_end;
		w->in_list = lists[0].count;
		w->is_long = lists[0].count >= OPS_WORTH_IT;
		w->descends = w->last < w->next;
	}
	if (n == 2 && !has_ops(&lists[1]))
		w->proxy = i + 2;
	return true;
}

/*
 * Kernels from 6.0 on preempt the program of a uprobe: another thread may be using it on this CPU.
 */
static __always_inline struct ops_window *enter_window(void)
{
	__u32 zero = 0;
	struct ops_window *window = bpf_map_lookup_elem(&ops_windows, &zero);

	if (!window)
		return NULL;
	__sync_fetch_and_add(&window->users, 1);
	if (*(volatile __u64 *)&window->users == 1)
		return window;
	__sync_fetch_and_add(&window->users, -1);
	return NULL;
}

static __always_inline void leave_window(struct ops_window *window)
{
	__sync_fetch_and_add(&window->users, -1);
}

#define MOST_LISTS   (WINDOW_BYTES / sizeof(struct nccl_proxy_ops) - 1)
#define WORDS_A_LIST (sizeof(struct nccl_proxy_ops) / 8)

/* A rank gives most proxies of a node no operation: their lists are read together. */
static __always_inline bool has_lists_to_skip(const struct ops_walk *w)
{
	return !w->ops && w->is_run && w->proxy < CW_NCCL_PROXIES &&
	       w->proxy + LISTS_WORTH_IT <= w->n_proxies;
}

static __always_inline void skip_empty_lists(struct ops_walk *w)
{
	__u64 first = w->first_proxy + w->proxy;
	__u32 n = w->n_proxies - w->proxy, i = 0;
	struct ops_window *window = enter_window();

	if (!window)
		return;
	if (n > MOST_LISTS)
		n = MOST_LISTS;
	barrier_var(n);
	n &= MOST_LISTS; /* for the verifier */
	if (!bpf_probe_read_user(window->words, n * sizeof(struct nccl_proxy_ops),
				 (void *)(w->proxy_ops + first * sizeof(struct nccl_proxy_ops)))) {
		for (i = 0; i < MOST_LISTS; i++) {
			const __u64 *list = window->words + i * WORDS_A_LIST;

			if (i >= n || (list[0] && (__s32)list[3] >= 0))
				break;
		}
	}
	leave_window(window);
	w->proxy += i;
}

static __always_inline __u64 next_op(const struct ops_walk *w)
{
	return w->ops + (__u64)(__u32)w->next * layout.op_size;
}

static __always_inline void step_over(struct ops_walk *w, __s32 next)
{
	if (w->next == w->last || next < 0)
		w->ops = 0;
	w->descends = next < w->next;
	w->next = next;
	w->in_list--;
}

/* NCCL memory that was read in one call. */
struct window_place {
	__u64 begin;
	__u64 bytes;
};

/* Reads the operations from the next one on, up or down. NULL: not possible. */
static __always_inline struct ops_window *read_window(const struct ops_walk *w,
						      struct window_place *place)
{
	struct ops_window *window = enter_window();
	/* No more than the list has: beyond it is the memory of another list. */
	__u64 n = w->in_list - 1 < WINDOW_OPS ? w->in_list : WINDOW_OPS, bytes;
	__u32 before = 0;

	if (!window)
		return NULL;
	if (fail_read == CW_NCCL_READ_OPERATION) { /* read_op fails */
		leave_window(window);
		return NULL;
	}
	if (w->descends)
		before = (__u32)w->next < n ? (__u32)w->next : n - 1;
	bytes = n * layout.op_size;
	barrier_var(bytes);
	if (bytes > WINDOW_BYTES)
		bytes = WINDOW_BYTES;
	place->begin = next_op(w) - (__u64)before * layout.op_size;
	place->bytes = bytes;
	if (!bpf_probe_read_user(window->words, bytes, (void *)place->begin))
		return window;
	leave_window(window);
	return NULL;
}

/* The next operation, if the copy contains it; else NULL. */
static __always_inline __u8 *op_in_window(const struct ops_walk *w, struct ops_window *window,
					  const struct window_place *place)
{
	__u64 at = next_op(w) - place->begin;

	barrier_var(at);
	if (at > WINDOW_BYTES - CW_NCCL_OP_BYTES || at + layout.op_size > place->bytes)
		return NULL;
	return (__u8 *)window->words + at;
}

/* Copies the next operation of the list, or its first `bytes`. */
static __always_inline bool read_op(struct ops_walk *w, __u8 *op, __u32 bytes)
{
	if (fails_on_purpose(CW_NCCL_READ_OPERATION) ||
	    bpf_probe_read_user(op, layout.op_size < bytes ? layout.op_size : bytes,
				(void *)next_op(w))) {
		not_read(w, CW_NCCL_READ_OPERATION, next_op(w));
		w->ops = 0;
		return false;
	}
	return true;
}

/* Whether it is another one than that of the operation before. */
static __always_inline bool is_new_task(struct ops_walk *w, __u64 address)
{
	bool is_new = address && (address != w->task || !w->n_tasks);

	w->task = address;
	w->n_tasks += is_new;
	return is_new;
}

static __always_inline void read_task(struct ops_walk *w, __u8 *task)
{
	if (bpf_probe_read_user(task, CW_NCCL_TASK_BYTES, (void *)w->task) || /* zeroes it */
	    fails_on_purpose(CW_NCCL_READ_TASK))
		not_read(w, CW_NCCL_READ_TASK, w->task);
}

static __always_inline __u64 task_of_next(struct ops_walk *w)
{
	__u64 address = 0;

	if (!READ_FIELD(address, next_op(w), op_task))
		not_read(w, CW_NCCL_READ_OPERATION, next_op(w));
	return address;
}

/*
 * Operations name their tasks, except the broadcasts of a group. Those tasks, the tasks of a plan
 * without operations, and sends and receives inside the node are in the plan's lists.
 */
enum listed { LISTS_OVER, NEXT_LIST, NEXT_TASK };

static __always_inline enum listed next_listed(struct ops_walk *w, __u8 *task)
{
	__u64 head = 0;

	if (!HAS(op_task) || !w->plan)
		return LISTS_OVER;
	if (w->listed) {
		if (!bpf_probe_read_user(task, CW_NCCL_TASK_BYTES, (void *)w->listed)) {
			w->task = w->listed;
			return NEXT_TASK;
		}
		not_read(w, CW_NCCL_READ_TASK, w->listed);
		w->listed = 0;
		return NEXT_LIST;
	}
	if (!w->queue && w->n_ops) {
		w->queue = HAS(bcast_root) ? QUEUE_BCASTS : QUEUE_NEIGHBOURS;
	} else if (!w->queue) {
		__u8 persistent = 0;

		/*
		 * Captured: this is no launch, and the launches of the graph do not come through
		 * here.
		 */
		READ_FIELD(persistent, w->plan, plan_persistent);
		if (persistent)
			return LISTS_OVER;
	}
	if (w->queue >= QUEUE_NEIGHBOURS) {
		/* All that goes to proxies was read: the launch is not cut if the rest is. */
		w->over = 1;
		if (w->queue >= QUEUES || !w->n_ops || !w->has_p2p || !w->has_neighbours)
			return LISTS_OVER;
	}
	if (w->queue == QUEUE_COLLS)
		READ_FIELD(head, w->plan, plan_colls);
	else if (w->queue == QUEUE_P2PS || w->queue == QUEUE_NEIGHBOURS)
		READ_FIELD(head, w->plan, plan_p2ps);
	else
		READ_FIELD(head, w->plan, plan_bcasts);
	w->listed = head;
	w->queue++;
	return NEXT_LIST;
}

/* Which list w->listed is of. */
static __always_inline __u32 listed_queue(const struct ops_walk *w)
{
	return w->queue - 1;
}

static __always_inline bool is_listed_p2p(const struct ops_walk *w)
{
	return listed_queue(w) == QUEUE_P2PS || listed_queue(w) == QUEUE_NEIGHBOURS;
}

/* A task that is in the list and not looked for: it has an operation. */
static __always_inline bool is_passed_over(const struct ops_walk *w,
					   const struct cw_nccl_comm_entry *entry, const __u8 *task)
{
	return listed_queue(w) == QUEUE_NEIGHBOURS &&
	       !(entry && is_neighbour(entry, FROM_COPY(__s32, task, p2p_root)));
}

/* A build without such tasks has no layout for them. */
static __always_inline bool is_listed_bcast(const struct ops_walk *w)
{
	return HAS(bcast_root) && listed_queue(w) == QUEUE_BCASTS;
}

static __always_inline void step_over_listed(struct ops_walk *w, const __u8 *task)
{
	__u32 queue = listed_queue(w);

	if (queue == QUEUE_COLLS)
		w->listed = SIZE_FROM_COPY(task, coll_next);
	else if (is_listed_p2p(w))
		w->listed = SIZE_FROM_COPY(task, p2p_next);
	else if (is_listed_bcast(w))
		w->listed = SIZE_FROM_COPY(task, bcast_next);
	else
		w->listed = 0;
}

static __always_inline __u32 hash_of_listed(const struct ops_walk *w, const __u8 *task)
{
	if (is_listed_bcast(w))
		return cw_nccl_arguments_hash(
			CW_NCCL_BROADCAST, FROM_COPY(__u64, task, bcast_sendbuff),
			FROM_COPY(__u64, task, bcast_recvbuff), FROM_COPY(__u64, task, bcast_bytes),
			FROM_COPY(__u32, task, bcast_root));
	return hash_of_task(task, is_listed_p2p(w));
}

static __always_inline __u64 mix_listed(const struct ops_walk *w, const __u8 *task)
{
	__u64 hash = w->hash;

	if (is_listed_bcast(w)) {
		hash = cw_nccl_mix(hash, FROM_COPY(__u64, task, bcast_bytes));
		return cw_nccl_mix(hash, FROM_COPY(__u32, task, bcast_root));
	}
	if (is_listed_p2p(w)) /* as mix_op: an AlltoAll looks like sends and receives */
		hash = cw_nccl_mix(hash, BYTE_FROM_COPY(task, p2p_api, 0));
	return mix_task(hash, task, is_listed_p2p(w));
}

#endif
