/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Two equal programs, siblings, on one function. Since Linux 5.12 (commit ca06f55b9002) the kernel
 * skips a tracing program on a CPU where it is already running: it misses the call of a softirq
 * that interrupts it, and, where the kernel preempts programs, the calls of other tasks. The
 * sibling is not running then. The first of the two to see a call handles it and leaves a mark; the
 * other removes the mark.
 */
#ifndef COLLWIRE_TWICE_H
#define COLLWIRE_TWICE_H

#include "shared_maps.h"
#include <bpf/bpf_tracing.h>

enum chance {
	CHANCE_ONLY, /* a kprobe: no sibling */
	CHANCE_FIRST,
	CHANCE_SECOND,
};

/* For the loss of calls that both missed: the kernel counts what one program missed. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, CW_TWICE_FUNCTIONS);
	__type(key, __u32);
	__type(value, struct cw_twice);
} twice SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, struct cw_mark_key);
	__type(value, struct cw_mark);
} marks SEC(".maps");

static __always_inline void count_chance(enum cw_twice_function function, enum chance chance,
					 bool handled)
{
	__u32 index = function;
	struct cw_twice *t;

	if (chance == CHANCE_ONLY)
		return;
	t = bpf_map_lookup_elem(&twice, &index);
	if (!t)
		return;
	if (handled)
		__sync_fetch_and_add(&t->handled, 1);
	if (chance == CHANCE_FIRST)
		__sync_fetch_and_add(&t->first_ran, 1);
}

/* Counts a call that both programs skip. */
static __always_inline void pass_call(enum cw_twice_function function, enum chance chance)
{
	count_chance(function, chance, chance == CHANCE_FIRST);
}

/*
 * Claims the call; false if the sibling already did. The same key again from the same program is
 * another call: the sibling missed the first and left its mark.
 */
static __always_inline bool take_call(enum cw_twice_function function, enum chance chance,
				      struct cw_call_key call)
{
	struct cw_mark_key key = {.call = call, .function = function};
	struct cw_mark mark = {.time_ns = bpf_ktime_get_ns(), .chance = chance};
	struct cw_mark *other;
	bool taken = true;

	if (chance == CHANCE_ONLY)
		return true;
	other = bpf_map_lookup_elem(&marks, &key);
	if (other && other->chance != chance) {
		bpf_map_delete_elem(&marks, &key);
		taken = false;
	} else if (bpf_map_update_elem(&marks, &key, &mark, BPF_ANY)) {
		/* Frames count only during the recording, queue pair events also before. */
		if (function < CW_TWICE_XMIT || !is_held())
			count_loss(CW_LOSS_CALL_TABLE);
		taken = false;
	}
	count_chance(function, chance, taken);
	return taken;
}

/*
 * A tracing program and its sibling NAME_again, on the same function. `handler` is an expression of
 * the arguments and of `chance`, which says which of the two runs.
 */
#define SIBLING_PROGRAMS(section, name, handler, ...)                                              \
	SEC(section)                                                                               \
	int BPF_PROG(name, __VA_ARGS__)                                                            \
	{                                                                                          \
		enum chance chance = CHANCE_FIRST;                                                 \
                                                                                                   \
		return handler;                                                                    \
	}                                                                                          \
	SEC(section)                                                                               \
	int BPF_PROG(name##_again, __VA_ARGS__)                                                    \
	{                                                                                          \
		enum chance chance = CHANCE_SECOND;                                                \
                                                                                                   \
		return handler;                                                                    \
	}

#endif
