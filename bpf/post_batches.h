/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Work requests that ibv_wr_* calls build, one call after the other. */
#ifndef COLLWIRE_POST_BATCHES_H
#define COLLWIRE_POST_BATCHES_H

#include "post_slots.h"
#include "collwire/post_records.h"

#define MAX_LIST_ENTRIES 32

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct cw_batch_key);
	__type(value, struct cw_batch);
} batches SEC(".maps");

static __always_inline struct cw_batch *batch_of(struct pt_regs *ctx, bool create)
{
	struct cw_batch_key key = {
		.qp_address = PT_REGS_PARM1(ctx),
		.tgid = bpf_get_current_pid_tgid() >> 32,
	};
	struct cw_batch *batch = bpf_map_lookup_elem(&batches, &key);
	struct empty *nothing;
	__u32 zero = 0;

	if (batch || !create || !tgid_wanted(key.tgid))
		return batch;
	nothing = bpf_map_lookup_elem(&empty, &zero);
	if (nothing)
		insert(&batches, &key, &nothing->batch);
	batch = bpf_map_lookup_elem(&batches, &key);
	if (!batch && !is_held())
		count_loss(CW_LOSS_POST_TABLE);
	return batch;
}

static __always_inline void finish_request(struct cw_batch *batch)
{
	__u32 post_class = batch->post_class;

	if (!batch->building || post_class >= CW_POST_CLASSES)
		return;
	batch->building = 0;
	if (!(batch->used_classes & (1u << post_class))) {
		batch->used_classes |= 1u << post_class;
		__builtin_memset(&batch->classes[post_class], 0, sizeof(batch->classes[0]));
	}
	cw_count_wr(&batch->classes[post_class], post_class, batch->length_bytes);
}

static __always_inline int begin_request(struct pt_regs *ctx, __u32 post_class, __u64 length_bytes)
{
	struct cw_batch *batch = batch_of(ctx, true);

	if (!batch)
		return 0;
	finish_request(batch);
	batch->post_class = post_class;
	batch->length_bytes = length_bytes;
	batch->building = 1;
	return 0;
}

/* A setter gives the whole payload of the request; a second one would replace it. */
static __always_inline int set_length(struct pt_regs *ctx, __u64 length_bytes)
{
	struct cw_batch *batch = batch_of(ctx, false);

	if (batch && batch->building)
		batch->length_bytes = length_bytes;
	return 0;
}

/* Both kinds of entry are 16 bytes; the length of a data buffer is 8 of them, of an sge 4. */
static __always_inline int set_list(struct pt_regs *ctx, bool inline_data)
{
	struct cw_batch *batch = batch_of(ctx, false);
	__u64 n = PT_REGS_PARM2(ctx);
	__u64 at = PT_REGS_PARM3(ctx);
	__u64 length_bytes = 0;
	__u32 i;

	if (!batch || !batch->building)
		return 0;
	for (i = 0; i < MAX_LIST_ENTRIES && i < n; i++) {
		struct cw_ibv_data_buf buf;

		if (bpf_probe_read_user(&buf, sizeof(buf), (void *)(at + i * sizeof(buf)))) {
			batch->faults = 1;
			break;
		}
		length_bytes += inline_data ? buf.length : (__u32)buf.length;
	}
	if (n > MAX_LIST_ENTRIES)
		batch->truncated = 1;
	batch->length_bytes = length_bytes;
	return 0;
}

static __always_inline void empty_batch(struct cw_batch *batch)
{
	batch->building = 0;
	batch->used_classes = 0;
	batch->faults = 0;
	batch->truncated = 0;
}

#endif
