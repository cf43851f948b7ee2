/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Two programs on one function. Since Linux 5.12 (commit ca06f55b9002) the kernel does not run a
 * tracing program on a CPU where that program is at work already: a softirq that interrupts it and
 * comes to the same function passes unseen. A second, equal program is at rest then. Of the two,
 * whichever sees a call first handles it and leaves a mark, and the other takes it away.
 */
#ifndef COLLWIRE_TWICE_H
#define COLLWIRE_TWICE_H

#include "kernel_types.h"
#include <bpf/bpf_helpers.h>
#include "collwire/tables.h"

enum chance {
	CHANCE_ONLY, /* a kprobe: there is no second program */
	CHANCE_FIRST,
	CHANCE_SECOND,
};

/* For the loss of calls that neither saw: what the kernel counts is what one program did not see.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, CW_TWICE_FUNCTIONS);
	__type(key, __u32);
	__type(value, struct cw_twice);
} twice SEC(".maps");

/* Once per program and call, at the end. */
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

#endif
