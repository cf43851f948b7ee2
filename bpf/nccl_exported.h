/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * NCCL calls, by the functions that nccl.h exports, for a library whose memory layout is not known
 * (API-only): at each of these probes the arguments are in the registers and above the return
 * address.
 */
#ifndef COLLWIRE_NCCL_EXPORTED_H
#define COLLWIRE_NCCL_EXPORTED_H

#include "nccl_comms.h"
#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_launch_records.h"

struct exported_call {
	__u64 comm;
	__u64 stream;
	__u64 sendbuff;
	__u64 recvbuff;
	__u64 count;
	__u32 datatype;
	__s32 root; /* or peer */
	__s32 reduction;
	__u32 func; /* enum cw_nccl_func */
};

struct exported_init {
	__u64 new_comm; /* where NCCL stores its address */
	__u64 parent;
	__s32 color;
	__u32 reserved;
};

/* Threads that create a communicator. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, struct exported_init);
} exported_inits SEC(".maps");

static __noinline long note_init(__u64 new_comm, __u64 parent, __s32 color)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct exported_init init = {.new_comm = new_comm, .parent = parent, .color = color};

	if (!tgid_wanted(id >> 32))
		return 0;
	return bpf_map_update_elem(&exported_inits, &id, &init, BPF_ANY);
}

/* ncclCommInitRank(newcomm, ...), ncclCommInitRankConfig, ncclCommInitRankScalable */
SEC("uprobe")
int exported_init_begins(struct pt_regs *ctx)
{
	KEEP_OWN_STACK(ctx);
	note_init(PT_REGS_PARM1(ctx), 0, 0);
	return 0;
}

/* ncclResult_t ncclCommSplit(comm, color, key, newcomm, config) */
SEC("uprobe")
int exported_split_begins(struct pt_regs *ctx)
{
	KEEP_OWN_STACK(ctx);
	note_init(PT_REGS_PARM4(ctx), PT_REGS_PARM1(ctx), (__s32)PT_REGS_PARM2(ctx));
	return 0;
}

/* In a group, or if it does not block, it is created later and discovered at its first call. */
SEC("uretprobe")
int exported_init_ends(struct pt_regs *ctx)
{
	KEEP_OWN_STACK(ctx);
	__u64 id = bpf_get_current_pid_tgid(), comm = 0, hash = 0;
	struct exported_init *init = bpf_map_lookup_elem(&exported_inits, &id);
	struct exported_init copy;
	__s32 n_ranks = 0;

	if (!init)
		return 0;
	copy = *init;
	bpf_map_delete_elem(&exported_inits, &id);
	if (PT_REGS_RC(ctx) || bpf_probe_read_user(&comm, sizeof(comm), (void *)copy.new_comm) ||
	    !comm)
		return 0;
	if (READ_FIELD(n_ranks, comm, comm_n_ranks) && n_ranks > 0 &&
	    READ_FIELD(hash, comm, comm_hash) && hash)
		meet_comm(comm, CW_NCCL_COMM_CREATED, copy.parent, copy.color);
	return 0;
}

/* 0 if the stack is not mapped: then it is not a communicator. */
static __always_inline __u64 stack_argument(struct pt_regs *ctx, __u32 index)
{
	__u64 value = 0;

	bpf_probe_read_user(&value, sizeof(value),
			    (void *)(PT_REGS_SP(ctx) + (index + 1) * sizeof(value)));
	return value;
}

static __noinline long emit_exported(const struct exported_call *call)
{
	__u64 id = bpf_get_current_pid_tgid(), bytes;
	struct cw_nccl_call *r;

	if (is_held() || !tgid_wanted(id >> 32))
		return 0;
	/* The application may have passed any arguments: NCCL checks them later. */
	if (!comm_entry(call->comm))
		return 0;
	r = RESERVE_RECORD_IN(bulk_events, cw_nccl_call, CW_KIND_NCCL_CALL, CW_LOSS_NCCL_CALL);
	if (!r)
		return 0;
	bytes = call->count * cw_nccl_type_bytes(call->datatype);
	r->comm = call->comm;
	r->tgid = id >> 32;
	r->tid = (__u32)id;
	r->count = call->count;
	r->stream = call->stream;
	r->arguments_hash = cw_nccl_arguments_hash(call->func, call->sendbuff, call->recvbuff,
						   bytes, (__u32)call->root);
	r->root = call->root;
	r->reduction = call->reduction;
	r->func = call->func;
	r->datatype = call->datatype;
	submit_bulk(r);
	return 0;
}

/* (sendbuff, recvbuff, count, datatype, op, comm, stream) */
static __always_inline long reduces_to_all(struct pt_regs *ctx, __u32 func)
{
	struct exported_call call = {
		.comm = ctx->r9,
		.stream = stack_argument(ctx, 0),
		.sendbuff = PT_REGS_PARM1(ctx),
		.recvbuff = PT_REGS_PARM2(ctx),
		.count = PT_REGS_PARM3(ctx),
		.datatype = PT_REGS_PARM4(ctx),
		.reduction = PT_REGS_PARM5(ctx),
		.func = func,
	};

	return emit_exported(&call);
}

/* (sendbuff, recvbuff, count, datatype, comm, stream) */
static __always_inline long has_no_root(struct pt_regs *ctx, __u32 func)
{
	struct exported_call call = {
		.comm = PT_REGS_PARM5(ctx),
		.stream = ctx->r9,
		.sendbuff = PT_REGS_PARM1(ctx),
		.recvbuff = PT_REGS_PARM2(ctx),
		.count = PT_REGS_PARM3(ctx),
		.datatype = PT_REGS_PARM4(ctx),
		.func = func,
	};

	return emit_exported(&call);
}

/* (sendbuff, recvbuff, count, datatype, root, comm, stream) */
static __always_inline long has_root(struct pt_regs *ctx, __u32 func)
{
	struct exported_call call = {
		.comm = ctx->r9,
		.stream = stack_argument(ctx, 0),
		.sendbuff = PT_REGS_PARM1(ctx),
		.recvbuff = PT_REGS_PARM2(ctx),
		.count = PT_REGS_PARM3(ctx),
		.datatype = PT_REGS_PARM4(ctx),
		.root = PT_REGS_PARM5(ctx),
		.func = func,
	};

	return emit_exported(&call);
}

/* (buffer, count, datatype, peer, comm, stream) */
static __always_inline long has_peer(struct pt_regs *ctx, __u32 func)
{
	struct exported_call call = {
		.comm = PT_REGS_PARM5(ctx),
		.stream = ctx->r9,
		.recvbuff = PT_REGS_PARM1(ctx),
		.count = PT_REGS_PARM2(ctx),
		.datatype = PT_REGS_PARM3(ctx),
		.root = PT_REGS_PARM4(ctx),
		.func = func,
	};

	return emit_exported(&call);
}

#define EXPORTED_CALL(program, arguments, func)                                                    \
	SEC("uprobe")                                                                              \
	int program(struct pt_regs *ctx)                                                           \
	{                                                                                          \
		KEEP_OWN_STACK(ctx);                                                               \
		arguments(ctx, func);                                                              \
		return 0;                                                                          \
	}

EXPORTED_CALL(calls_all_reduce, reduces_to_all, CW_NCCL_ALL_REDUCE)
EXPORTED_CALL(calls_reduce_scatter, reduces_to_all, CW_NCCL_REDUCE_SCATTER)
EXPORTED_CALL(calls_all_gather, has_no_root, CW_NCCL_ALL_GATHER)
EXPORTED_CALL(calls_all_to_all, has_no_root, CW_NCCL_ALL_TO_ALL)
/* ncclBcast calls it. */
EXPORTED_CALL(calls_broadcast, has_root, CW_NCCL_BROADCAST)
EXPORTED_CALL(calls_gather, has_root, CW_NCCL_GATHER)
EXPORTED_CALL(calls_scatter, has_root, CW_NCCL_SCATTER)
EXPORTED_CALL(calls_send, has_peer, CW_NCCL_SEND)
EXPORTED_CALL(calls_recv, has_peer, CW_NCCL_RECV)

/* ncclResult_t ncclReduce(sendbuff, recvbuff, count, datatype, op, root, comm, stream) */
SEC("uprobe")
int calls_reduce(struct pt_regs *ctx)
{
	KEEP_OWN_STACK(ctx);
	struct exported_call call = {
		.comm = stack_argument(ctx, 0),
		.stream = stack_argument(ctx, 1),
		.sendbuff = PT_REGS_PARM1(ctx),
		.recvbuff = PT_REGS_PARM2(ctx),
		.count = PT_REGS_PARM3(ctx),
		.datatype = PT_REGS_PARM4(ctx),
		.reduction = PT_REGS_PARM5(ctx),
		.root = ctx->r9,
		.func = CW_NCCL_REDUCE,
	};

	emit_exported(&call);
	return 0;
}

#endif
