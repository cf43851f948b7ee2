/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * NCCL's calls, launches and communicators, read from the memory of the processes that run one NCCL
 * library file. The recorder loads this object once for each file, with its offsets in `layout`,
 * and attaches the programs to functions of that file. docs/sources/nccl.md gives the cost and the
 * limits.
 *
 *
 * No program here is attached to a function that NCCL calls per message or while it waits.
 */
#include "nccl_exported.h"
#include "nccl_launches.h"
#include "nccl_sockets.h"
#include "nccl_warnings.h"
#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_connection_records.h"
#include "collwire/nccl_launch_records.h"

/* communicators: a few in the life of a process */

/* Threads in ncclCommInitRankFunc, with the job that each runs. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, __u64);
} inits SEC(".maps");

/* ncclResult_t ncclCommInitRankFunc(struct ncclAsyncJob *job) */
SEC("uprobe")
int init_begins(struct pt_regs *ctx)
{
	KEEP_OWN_STACK(ctx);
	__u64 id = bpf_get_current_pid_tgid(), job = PT_REGS_PARM1(ctx);

	if (tgid_wanted(id >> 32))
		bpf_map_update_elem(&inits, &id, &job, BPF_ANY);
	return 0;
}

SEC("uretprobe")
int init_ends(struct pt_regs *ctx)
{
	KEEP_OWN_STACK(ctx);
	__u64 id = bpf_get_current_pid_tgid(), comm = 0, parent = 0;
	__u64 *job = bpf_map_lookup_elem(&inits, &id);
	__s32 color = 0;

	if (!job)
		return 0;
	READ_FIELD(comm, *job, job_comm);
	READ_FIELD(parent, *job, job_parent);
	READ_FIELD(color, *job, job_color);
	bpf_map_delete_elem(&inits, &id);
	if (!PT_REGS_RC(ctx))
		meet_comm(comm, CW_NCCL_COMM_CREATED, parent, color);
	return 0;
}

/* ncclResult_t commCleanup(struct ncclComm *comm) */
SEC("uprobe")
int comm_ends(struct pt_regs *ctx)
{
	KEEP_OWN_STACK(ctx);
	__u64 id = bpf_get_current_pid_tgid();
	struct cw_nccl_comm_key key = {.comm = PT_REGS_PARM1(ctx), .tgid = id >> 32};
	struct cw_nccl_comm_end *r;

	if (bpf_map_delete_elem(&comms, &key))
		return 0;
	r = RESERVE_RECORD(cw_nccl_comm_end, CW_KIND_NCCL_COMM_END, CW_LOSS_NCCL_COMM);
	if (!r)
		return 0;
	r->tgid = id >> 32;
	r->tid = (__u32)id;
	r->comm = key.comm;
	bpf_ringbuf_submit(r, 0);
	return 0;
}

/* API calls */

/* Threads in a call. Only with --api-returns. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, struct cw_nccl_call_in_flight);
} calls_in_flight SEC(".maps");

const volatile bool watch_returns = false;

static __noinline long note_call(__u64 comm, __u64 time_ns)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct cw_nccl_call_in_flight call = {.comm = comm, .time_ns = time_ns};

	return bpf_map_update_elem(&calls_in_flight, &id, &call, BPF_ANY);
}

/* ncclResult_t ncclEnqueueCheck(struct ncclInfo *info) */
SEC("uprobe")
int enqueue_check(struct pt_regs *ctx)
{
	KEEP_OWN_STACK(ctx);
	__u64 id = bpf_get_current_pid_tgid(), comm, count, bytes;
	__u8 info[CW_NCCL_INFO_BYTES] COPIED;
	struct cw_nccl_call *r;
	__u32 func, type;

	if (is_held() || !tgid_wanted(id >> 32))
		return 0;
	/* First: its memory is fetched to this CPU while the rest is read. */
	r = bpf_ringbuf_reserve(&bulk_events, sizeof(*r), 0);
	if (!r) {
		count_loss(CW_LOSS_NCCL_CALL);
		return 0;
	}
	r->header.length_bytes = sizeof(*r);
	r->header.kind = CW_KIND_NCCL_CALL;
	r->header.cpu = bpf_get_smp_processor_id();
	r->tgid = id >> 32;
	r->tid = (__u32)id;
	r->reserved = 0;
	if (bpf_probe_read_user(info, sizeof(info), (void *)PT_REGS_PARM1(ctx))) {
		bpf_ringbuf_discard(r, BPF_RB_NO_WAKEUP);
		count_loss(CW_LOSS_NCCL_CALL);
		return 0;
	}
	comm = FROM_COPY(__u64, info, info_comm);
	/* The application may have passed any arguments: NCCL checks them later. */
	if (!comm_entry(comm)) {
		bpf_ringbuf_discard(r, BPF_RB_NO_WAKEUP);
		return 0;
	}
	r->header.time_ns =
		bpf_ktime_get_ns(); /* its communicator's record may have been emitted just now */
	func = FROM_COPY(__u32, info, info_coll);
	type = FROM_COPY(__u32, info, info_datatype);
	count = FROM_COPY(__u64, info, info_count);
	bytes = count * cw_nccl_type_bytes(type);
	r->comm = comm;
	r->count = count;
	r->stream = FROM_COPY(__u64, info, info_stream);
	r->root = FROM_COPY(__s32, info, info_root);
	r->reduction = FROM_COPY(__s32, info, info_op);
	r->arguments_hash = cw_nccl_arguments_hash(func, FROM_COPY(__u64, info, info_sendbuff),
						   FROM_COPY(__u64, info, info_recvbuff), bytes,
						   FROM_COPY(__u32, info, info_root));
	r->func = func;
	r->datatype = type;
	r->flags = 0;
	if (watch_returns)
		note_call(comm, r->header.time_ns);
	submit_bulk(r);
	return 0;
}

SEC("uretprobe")
int enqueue_returns(struct pt_regs *ctx)
{
	KEEP_OWN_STACK(ctx);
	__u64 id = bpf_get_current_pid_tgid();
	struct cw_nccl_call_in_flight *call = bpf_map_lookup_elem(&calls_in_flight, &id);
	struct cw_nccl_return *r;

	if (!call)
		return 0;
	r = RESERVE_RECORD_IN(bulk_events, cw_nccl_return, CW_KIND_NCCL_RETURN, CW_LOSS_NCCL_CALL);
	if (r) {
		r->comm = call->comm;
		r->call_ns = call->time_ns;
		r->tgid = id >> 32;
		r->tid = (__u32)id;
		r->result = (__u32)PT_REGS_RC(ctx);
		submit_bulk(r);
	}
	bpf_map_delete_elem(&calls_in_flight, &id);
	return 0;
}

/* proxy operations */

/* Not inlined: one function emits all proxy operations. */
static __noinline long emit_progress(__u64 args, __s32 index, __u32 flags)
{
	__u64 id = bpf_get_current_pid_tgid(), connection = 0, base = 0;
	__u64 sub = args + layout.args_subs + (__s64)index * layout.sub_size;
	struct cw_nccl_progress *r;
	__s32 transport = -1;
	__u32 nsteps = 0;

	if (is_held() || !tgid_wanted(id >> 32))
		return 0;
	if (!READ_FIELD(connection, sub, sub_connection) || !READ_FIELD(nsteps, sub, sub_nsteps) ||
	    !READ_FIELD(base, sub, sub_base) ||
	    !READ_FIELD(transport, connection, connection_transport)) {
		count_loss(CW_LOSS_NCCL_PROGRESS);
		return 1;
	}
	if (transport != TRANSPORT_NET)
		return 0;
	r = RESERVE_RECORD_IN(bulk_events, cw_nccl_progress, CW_KIND_NCCL_PROGRESS,
			      CW_LOSS_NCCL_PROGRESS);
	if (!r)
		return 1;
	r->connection = connection;
	r->group = args;
	r->base_steps = flags & CW_NCCL_PROGRESS_END ? base : 0;
	r->tgid = id >> 32;
	r->tid = (__u32)id;
	r->nsteps = nsteps;
	r->flags = flags;
	submit_bulk(r);
	return 0;
}

/*
 * ncclResult_t ncclProfilerStartProxyOpEvent(int sub, struct ncclProxyArgs *args), before 2.27
 * ncclProfilerStart{Send,Recv}ProxyOpEvent. With the stop below once for each operation and
 * connection. All three only with --network-times.
 */
SEC("uprobe")
int proxy_op_begins(struct pt_regs *ctx)
{
	KEEP_OWN_STACK(ctx);
	emit_progress(PT_REGS_PARM2(ctx), (__s32)PT_REGS_PARM1(ctx), 0);
	return 0;
}

/* ncclResult_t ncclProfilerStopProxyOpEvent(int sub, struct ncclProxyArgs *args) */
SEC("uprobe")
int proxy_op_ends(struct pt_regs *ctx)
{
	KEEP_OWN_STACK(ctx);
	emit_progress(PT_REGS_PARM2(ctx), (__s32)PT_REGS_PARM1(ctx), CW_NCCL_PROGRESS_END);
	return 0;
}

/* launches */

static __always_inline void walk(struct ops_walk *w, struct cw_nccl_comm_entry *entry)
{
	bpf_loop(MAX_STEPS, look_callback, w, 0);
	if (!end_look(w, entry))
		return;
	begin_again(w);
	bpf_loop(MAX_STEPS, emit_callback, w, 0);
	end_emit(w);
	begin_again(w);
	bpf_loop(MAX_STEPS, connect_callback, w, 0);
	end_connect(w);
}

/*
 * ncclResult_t ncclProxyStart(struct ncclComm *comm), once for each launch, from 2.27 on only for
 * launches with proxy operations. Its only caller keeps the kernel plan in a register that is
 * unchanged at the probe.
 */
SEC("uprobe")
int proxy_start(struct pt_regs *ctx)
{
	KEEP_OWN_STACK(ctx);
	struct cw_nccl_comm_entry *entry;
	struct ops_walk w;

	__builtin_memset(&w, 0, sizeof(w));
	w.plan = plan_of(ctx);
	entry = begin_launch(&w, ctx, true);
	if (entry)
		walk(&w, entry);
	return 0;
}

/*
 * In ncclLocalOpAppend, where a list of operations has reached NCCL's limit (1,024 up to 2.26,
 * 2,048 since) and all but its end goes to the proxy. Runs once per that many operations, so
 * smaller launches pay nothing.
 */
SEC("uprobe")
int ops_posted_early(struct pt_regs *ctx)
{
	KEEP_OWN_STACK(ctx);
	note_early_post();
	return 0;
}

/*
 * Whether a kernel plan has no proxy operations: those with some go on to ncclProxyStart. Not
 * inlined: its stack is free again afterwards.
 */
static __noinline long is_local(__u64 plan)
{
	__u64 first = 0;
	__u8 persistent = 0;

	return READ_FIELD(first, plan, plan_proxy_ops) && !first &&
	       READ_FIELD(persistent, plan, plan_persistent) && !persistent;
}

/* ncclResult_t hostStreamPlanTask(struct ncclComm *comm, struct ncclKernelPlan *plan). Only with
 * --local-launches. */
SEC("uprobe")
int plan_task(struct pt_regs *ctx)
{
	KEEP_OWN_STACK(ctx);
	struct cw_nccl_comm_entry *entry;
	struct ops_walk w;

	if (!is_local(PT_REGS_PARM2(ctx)))
		return 0;
	__builtin_memset(&w, 0, sizeof(w));
	w.plan = PT_REGS_PARM2(ctx);
	entry = begin_launch(&w, ctx, false);
	if (entry)
		walk(&w, entry);
	return 0;
}

/*
 * The same without bpf_loop (before Linux 5.17). A global function is verified once, however often
 * it is called, but takes no pointers there (before 5.12): it finds the walk by itself. Kernels
 * from 6.0 on preempt the program of a uprobe, and some of them refuse bpf_loop: a program that
 * finds the walk in use drops its launch.
 */
#define BOUNDED_STEPS 1024

struct walk_place {
	__u64 users;
	struct ops_walk walk;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct walk_place);
} ops_walks SEC(".maps");

static __always_inline struct walk_place *walk_place_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&ops_walks, &zero);
}

static __always_inline struct ops_walk *walk_here(void)
{
	struct walk_place *place = walk_place_here();

	return place ? &place->walk : NULL;
}

static __always_inline void leave_walk(struct walk_place *place)
{
	__sync_fetch_and_add(&place->users, -1);
}

/* NULL: another thread, preempted on this CPU, is using it. */
static __always_inline struct ops_walk *enter_walk(struct walk_place *place)
{
	__sync_fetch_and_add(&place->users, 1);
	if (*(volatile __u64 *)&place->users != 1) {
		leave_walk(place);
		count_loss(CW_LOSS_NCCL_LAUNCH);
		return NULL;
	}
	__builtin_memset(&place->walk, 0, sizeof(place->walk));
	return &place->walk;
}

__weak __noinline int look_here(void)
{
	struct ops_walk *w = walk_here();
	__u8 copy[CW_NCCL_OP_BYTES] COPIED; /* the stack is short */

	/* The other walks have to reach each operation that this one reads, one by one. */
	if (!w || w->n_ops + w->n_proxies + WINDOW_OPS > BOUNDED_STEPS)
		return 1;
	if (has_lists_to_skip(w)) {
		skip_empty_lists(w);
		next_proxy(w, NULL, PROXY_LISTS_IN(copy));
		return 0;
	}
	if (!w->ops)
		return look_at_lists(w, copy, PROXY_LISTS_IN(copy));
	if (w->is_long)
		look_through_window(w, TASK_CHECKED_HERE);
	else
		look_at_next_op(w, copy, TASK_CHECKED_HERE);
	return 0;
}

__weak __noinline int emit_here(void)
{
	struct ops_walk *w = walk_here();

	return w ? emit_step(w) : 1;
}

__weak __noinline int connect_here(void)
{
	struct ops_walk *w = walk_here();

	return w ? connect_step(w) : 1;
}

static __always_inline void walk_bounded(struct ops_walk *w, struct cw_nccl_comm_entry *entry)
{
	int i;

	for (i = 0; i < BOUNDED_STEPS; i++)
		if (look_here())
			break;
	if (!end_look(w, entry))
		return;
	begin_again(w);
	for (i = 0; i < BOUNDED_STEPS; i++)
		if (emit_here())
			break;
	end_emit(w);
	begin_again(w);
	for (i = 0; i < BOUNDED_STEPS; i++)
		if (connect_here())
			break;
	end_connect(w);
}

static __always_inline void launch_bounded(struct pt_regs *ctx, __u64 plan, bool for_proxies)
{
	struct walk_place *place = walk_place_here();
	struct ops_walk *w = place ? enter_walk(place) : NULL;
	struct cw_nccl_comm_entry *entry;

	if (!w)
		return;
	w->plan = plan;
	entry = begin_launch(w, ctx, for_proxies);
	if (entry)
		walk_bounded(w, entry);
	leave_walk(place);
}

SEC("uprobe")
int proxy_start_bounded(struct pt_regs *ctx)
{
	KEEP_OWN_STACK(ctx);
	launch_bounded(ctx, plan_of(ctx), true);
	return 0;
}

SEC("uprobe")
int plan_task_bounded(struct pt_regs *ctx)
{
	KEEP_OWN_STACK(ctx);
	if (is_local(PT_REGS_PARM2(ctx)))
		launch_bounded(ctx, PT_REGS_PARM2(ctx), false);
	return 0;
}

/* In the function that NCCL's warnings go through. Only with --warnings. */
SEC("uprobe")
int warns(struct pt_regs *ctx)
{
	KEEP_OWN_STACK(ctx);
	emit_warning(ctx);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
