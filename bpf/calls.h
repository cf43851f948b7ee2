/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A call of a kernel function between entry and return. fexit sees the arguments again, a kretprobe
 * does not: so the entry stores what the exit needs in a map, under a key that both sides can
 * compute and that nested calls do not share.
 */
#ifndef COLLWIRE_CALLS_H
#define COLLWIRE_CALLS_H

#include "kernel_types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "collwire/tables.h"

static __always_inline struct cw_call_key traced_call(const void *argument)
{
	struct cw_call_key key = {bpf_get_current_pid_tgid(), (__u64)argument};

	return key;
}

/* At a function's first instruction the stack pointer points to the return address. */
static __always_inline struct cw_call_key kprobe_call(struct pt_regs *registers)
{
	struct cw_call_key key = {bpf_get_current_pid_tgid(), PT_REGS_SP(registers)};

	return key;
}

/* After the return the address has been popped. */
static __always_inline struct cw_call_key kretprobe_call(struct pt_regs *registers)
{
	struct cw_call_key key = {bpf_get_current_pid_tgid(),
				  PT_REGS_SP(registers) - sizeof(unsigned long)};

	return key;
}

#endif
