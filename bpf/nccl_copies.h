/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Fields of copied NCCL operations and tasks, and the hashes of their shape. */
#ifndef COLLWIRE_NCCL_COPIES_H
#define COLLWIRE_NCCL_COPIES_H

#include "nccl_connections.h"
#include "collwire/nccl_launch_records.h"

/* Read as whole numbers later. */
#define COPIED __attribute__((aligned(8)))

/* The fields of an operation, from a copy of it. */
#define FROM_COPY(type, copy, field) (*(const type *)((copy) + layout.field))

static __always_inline __u64 op_size_field(const __u8 *op, __u32 offset)
{
	return offset == CW_NCCL_NO_FIELD ? 0 : *(const __u64 *)(op + offset);
}
#define SIZE_FROM_COPY(copy, field) op_size_field(copy, layout.field)
#define BYTE_FROM_COPY(copy, field, otherwise)                                                     \
	(HAS(field) ? FROM_COPY(__u8, copy, field) : (otherwise))
/* int up to 2.22, size_t since. */
static __always_inline __u64 chunk_bytes_of(const __u8 *op)
{
	return HAS(op_task) ? FROM_COPY(__u64, op, op_chunk_size)
			    : (__u64)(__s64)FROM_COPY(__s32, op, op_chunk_size);
}

static __always_inline bool is_p2p(const __u8 *op)
{
	return HAS(op_coll) && FROM_COPY(__u8, op, op_coll) > CW_NCCL_ALL_REDUCE;
}

/* The hash of the call that a task comes from. */
static __always_inline __u32 hash_of_task(const __u8 *task, bool p2p)
{
	__u32 func, type;
	__u64 count;

	if (p2p) {
		func = FROM_COPY(__u8, task, p2p_func);
		return cw_nccl_arguments_hash(func, 0, FROM_COPY(__u64, task, p2p_buff),
					      FROM_COPY(__u64, task, p2p_bytes),
					      FROM_COPY(__u32, task, p2p_root));
	}
	func = FROM_COPY(__u8, task, coll_func);
	type = FROM_COPY(__u32, task, coll_datatype);
	count = FROM_COPY(__u64, task, coll_count);
	return cw_nccl_arguments_hash(
		func, FROM_COPY(__u64, task, coll_sendbuff), FROM_COPY(__u64, task, coll_recvbuff),
		count * cw_nccl_type_bytes(type), FROM_COPY(__u32, task, coll_root));
}

static __always_inline __u64 mix_task(__u64 hash, const __u8 *task, bool p2p)
{
	if (p2p) {
		hash = cw_nccl_mix(hash, FROM_COPY(__u64, task, p2p_count));
		hash = cw_nccl_mix(hash, FROM_COPY(__u64, task, p2p_bytes));
		return cw_nccl_mix(hash, (__u64)FROM_COPY(__u32, task, p2p_root) << 32 |
						 FROM_COPY(__u8, task, p2p_datatype) << 8 |
						 FROM_COPY(__u8, task, p2p_func));
	}
	hash = cw_nccl_mix(hash, FROM_COPY(__u64, task, coll_count));
	hash = cw_nccl_mix(hash, FROM_COPY(__u32, task, coll_op));
	return cw_nccl_mix(hash, (__u64)FROM_COPY(__u32, task, coll_root) << 32 |
					 FROM_COPY(__u8, task, coll_datatype) << 8 |
					 FROM_COPY(__u8, task, coll_func));
}

/* The hash of an operation's shape. The products do not wait for one another. */
static __always_inline __u64 hash_of_op(const __u8 *op)
{
	__u64 sum = FROM_COPY(__u64, op, op_connection) * 0x9e3779b97f4a7c15ull;

	sum += FROM_COPY(__u64, op, op_nbytes) * 0xbf58476d1ce4e5b9ull;
	sum += chunk_bytes_of(op) * 0x94d049bb133111ebull;
	if (HAS(op_channel_size)) {
		sum += FROM_COPY(__u64, op, op_slice_size) * 0xd6e8feb86659fd93ull;
		sum += FROM_COPY(__u64, op, op_loop_size) * 0xa0761d6478bd642full;
		sum += FROM_COPY(__u64, op, op_loop_offset) * 0xe7037ed1a0b428dbull;
		sum += FROM_COPY(__u64, op, op_channel_size) * 0x8ebc6af09c88c6e3ull;
	}
	sum += ((__u64)FROM_COPY(__u32, op, op_nsteps) << 32 |
		(HAS(op_task) ? 0 : FROM_COPY(__u32, op, op_root))) *
	       0x589965cc75374cc3ull;
	/*
	 * Before 2.24 no task names its function: AllGather and ReduceScatter can be equal in all
	 * else.
	 */
	if (!HAS(op_task))
		sum += ((__u64)BYTE_FROM_COPY(op, op_coll, 0xff) << 16 |
			FROM_COPY(__u8, op, op_dtype) << 8 | FROM_COPY(__u8, op, op_red_op)) *
		       0xe9846af9b1a615d5ull;
	/* The call, too: an AlltoAll looks like the sends and receives that it consists of. */
	return sum + ((__u64)BYTE_FROM_COPY(op, op_coll_api, 0) << 56 |
		      (__u64)FROM_COPY(__u8, op, op_channel) << 48 |
		      (__u64)BYTE_FROM_COPY(op, op_algorithm, 0xff) << 40 |
		      (__u64)FROM_COPY(__u8, op, op_pattern) << 32 |
		      (__u32)FROM_COPY(__u8, op, op_protocol) << 24 |
		      FROM_COPY(__u8, op, op_slice_steps) << 16 |
		      FROM_COPY(__u8, op, op_chunk_steps) << 8 | BYTE_FROM_COPY(op, op_reg, 0)) *
			     0x1d8e4e27c47d124full;
}

#endif
