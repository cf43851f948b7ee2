/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * NCCL's warnings, with --warnings: the format of the new warning, and the text of the one before.
 */
#ifndef COLLWIRE_NCCL_WARNINGS_H
#define COLLWIRE_NCCL_WARNINGS_H

#include "nccl_comms.h"
#include "collwire/nccl_error_records.h"

#define NCCL_LOG_WARN	    2
#define WARNINGS_A_SECOND   64
#define WARNINGS_COUNT_BITS 16
#define NS_PER_S	    1000000000ull

/* The current second, and the number of warnings emitted in it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} warnings_now SEC(".maps");

/* A program may warn in a loop. Two warnings at once may count as one. */
static __always_inline bool too_many_warnings(void)
{
	__u64 second = bpf_ktime_get_ns() / NS_PER_S << WARNINGS_COUNT_BITS;
	__u32 zero = 0;
	__u64 *now = bpf_map_lookup_elem(&warnings_now, &zero);

	if (!now)
		return true;
	if (*now < second)
		*now = second;
	if (*now - second >= WARNINGS_A_SECOND)
		return true;
	*now += 1;
	return false;
}

/*
 * ncclDebugLogV(level, flags, file, function, line, format, arguments), before 2.30
 * ncclDebugLog(level, flags, file, line, format, ...)
 */
static __always_inline void emit_warning(struct pt_regs *ctx)
{
	/*
	 * All are read, as in plan_of(): line and format; with a function before them they are one
	 * further.
	 */
	volatile __u64 arguments[3] = {PT_REGS_PARM4(ctx), PT_REGS_PARM5(ctx), ctx->r9};
	__u32 line = layout.warning_names_function ? 1 : 0;
	__u64 id = bpf_get_current_pid_tgid();
	struct cw_nccl_warning *r;

	if ((__u32)PT_REGS_PARM1(ctx) != NCCL_LOG_WARN || is_held() || !tgid_wanted(id >> 32))
		return;
	if (too_many_warnings()) {
		count_loss(CW_LOSS_NCCL_WARNING);
		return;
	}
	r = RESERVE_RECORD(cw_nccl_warning, CW_KIND_NCCL_WARNING, CW_LOSS_NCCL_WARNING);
	if (!r)
		return;
	r->tgid = id >> 32;
	r->tid = (__u32)id;
	r->image_id = layout.image_id;
	r->line = (__u32)arguments[line];
	bpf_probe_read_user_str(r->file, sizeof(r->file), (void *)PT_REGS_PARM3(ctx));
	bpf_probe_read_user_str(r->format, sizeof(r->format), (void *)arguments[line + 1]);
	if (layout.last_error)
		bpf_probe_read_user_str(
			r->earlier, sizeof(r->earlier),
			(void *)(PT_REGS_IP(ctx) - layout.warning + layout.last_error));
	bpf_ringbuf_submit(r, 0);
}

#endif
