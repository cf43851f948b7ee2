/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Hand-overs of the guest library libcollwire_cupti.so in CUDA processes: a uprobe on the function
 * that it calls for each copies up to 64 items into records. A second program, on the function
 * whose probe arms the library, does nothing: while it is attached, the kernel raises the semaphore
 * that the library polls.
 */
#include "own_stack.h"
#include "shared_maps.h"
#include <bpf/bpf_tracing.h>
#include "collwire/gpu_records.h"

/* Items of a later library may be longer; this bounds the distance between two. */
#define MOST_ITEM_BYTES 4096

/*
 * Reserves a record, copies the part of the item that this program knows, and submits it. The rest
 * of the record stays 0: a library that is older has shorter items.
 */
#define COPY_ITEM(type, record_kind, member, from, item_bytes, thread_group)                       \
	do {                                                                                       \
		struct type *r = RESERVE_RECORD_IN(bulk_events, type, record_kind, CW_LOSS_GPU);   \
		__u64 bytes = item_bytes;                                                          \
                                                                                                   \
		if (!r)                                                                            \
			return 0;                                                                  \
		if (bytes > sizeof(r->member))                                                     \
			bytes = sizeof(r->member);                                                 \
		r->tgid = thread_group;                                                            \
		if (bpf_probe_read_user(&r->member, bytes, (void *)from)) {                        \
			bpf_ringbuf_discard(r, BPF_RB_NO_WAKEUP);                                  \
			count_loss(CW_LOSS_GPU);                                                   \
			return 0;                                                                  \
		}                                                                                  \
		submit_bulk(r);                                                                    \
	} while (0)

/*
 * The length has 64 bits: of 32 the compiler compares one copy and uses another, whose bounds the
 * verifier does not know.
 *
 * Global: the verifier checks it once, not for each of 64 steps. Weak: the compiler must not use
 * what it knows of the return value, which the verifier does not.
 */
__weak __noinline int copy_item(__u32 item, __u64 from, __u64 item_bytes, __u32 tgid)
{
	if (item == CW_GPU_ITEM_KERNEL)
		COPY_ITEM(cw_gpu_kernel, CW_KIND_GPU_KERNEL, kernel, from, item_bytes, tgid);
	else if (item == CW_GPU_ITEM_NAME)
		COPY_ITEM(cw_gpu_name, CW_KIND_GPU_NAME, name, from, item_bytes, tgid);
	else if (item == CW_GPU_ITEM_WINDOW)
		COPY_ITEM(cw_gpu_window, CW_KIND_GPU_WINDOW, window, from, item_bytes, tgid);
	else if (item == CW_GPU_ITEM_CHANNEL)
		COPY_ITEM(cw_gpu_channel, CW_KIND_GPU_CHANNEL, channel, from, item_bytes, tgid);
	else if (item == CW_GPU_ITEM_PROFILER)
		COPY_ITEM(cw_gpu_profiler, CW_KIND_GPU_PROFILER, profiler, from, item_bytes, tgid);
	else
		COPY_ITEM(cw_gpu_trace, CW_KIND_GPU_TRACE, state, from, item_bytes, tgid);
	return 0;
}

static __always_inline bool is_known_form(const struct cw_gpu_batch *batch)
{
	return batch->magic == CW_GPU_BATCH_MAGIC && batch->version == CW_GPU_BATCH_VERSION &&
	       batch->item >= CW_GPU_ITEM_KERNEL && batch->item < CW_GPU_ITEMS &&
	       batch->count <= CW_GPU_BATCH_ITEMS && batch->item_bytes >= sizeof(__u64) &&
	       batch->item_bytes <= MOST_ITEM_BYTES;
}

/* void collwire_gpu_batch(const struct cw_gpu_batch *batch) */
SEC("uprobe")
int gpu_batch(struct pt_regs *ctx)
{
	KEEP_OWN_STACK(ctx);
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct cw_gpu_batch batch = {};
	__u32 i;

	if (is_over() || !tgid_wanted(tgid))
		return 0;
	if (bpf_probe_read_user(&batch, sizeof(batch), (void *)PT_REGS_PARM1(ctx)) ||
	    !is_known_form(&batch)) {
		count_loss(CW_LOSS_GPU_BATCH);
		return 0;
	}
	/* Names and states come when the library arms, which may be before the gate opens. */
	if (is_held() && batch.item != CW_GPU_ITEM_NAME && batch.item != CW_GPU_ITEM_STATE &&
	    batch.item != CW_GPU_ITEM_PROFILER)
		return 0;
	for (i = 0; i < CW_GPU_BATCH_ITEMS; i++) {
		if (i >= batch.count)
			break;
		copy_item(batch.item, batch.items + (__u64)i * batch.item_bytes, batch.item_bytes,
			  tgid);
	}
	return 0;
}

/* The library's nop for the semaphore, which no process need ever run. */
SEC("uprobe")
int gpu_arm(struct pt_regs *ctx)
{
	KEEP_OWN_STACK(ctx);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
