/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Keeps the stack of a uprobe's program that of its thread. Since Linux 6.13 (bpf: Enable private
 * stack for eligible subprogs) the stack of a kprobe's or uprobe's program is per-CPU memory. A
 * uprobe's program can be preempted: on a preemptible kernel the program of another thread then
 * uses the same memory. Seen on 7.2: sums of two threads in one, and a ring buffer with an entry
 * that was never finished. A program that contains a tail call, even one that never runs, keeps the
 * stack of its thread.
 */
#ifndef COLLWIRE_OWN_STACK_H
#define COLLWIRE_OWN_STACK_H

#include "kernel_types.h"
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} no_programs SEC(".maps");

const volatile bool has_programs = false;

/* No cost: the verifier removes code that never runs, and remembers that the call was there. */
#define KEEP_OWN_STACK(ctx)                                                                        \
	do {                                                                                       \
		if (has_programs)                                                                  \
			bpf_tail_call(ctx, &no_programs, 0);                                       \
	} while (0)

#endif
