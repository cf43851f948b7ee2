/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Since Linux 6.13 (bpf: Enable private stack for eligible subprogs) what a program of a kprobe or
 * uprobe has on its stack lies in memory of the CPU. The program of a uprobe can be preempted:
 * where the kernel is preemptible, that of another thread then works on the same memory. Seen
 * on 7.2: sums of two threads in one, and a ring buffer behind a place of which nothing was read. A
 * program in which there is a tail call, be it never done, keeps the stack of its thread.
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

/* Costs nothing: the verifier takes out what is never done, and remembers that it was there. */
#define KEEP_OWN_STACK(ctx)                                                                        \
	do {                                                                                       \
		if (has_programs)                                                                  \
			bpf_tail_call(ctx, &no_programs, 0);                                       \
	} while (0)

#endif
