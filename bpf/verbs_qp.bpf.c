/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The life of the queue pairs of processes, as libibverbs' control path shows it: uprobes on the
 * functions that every provider calls to create, modify and destroy one. For kernels whose ib_core
 * cannot be read. docs/sources/verbs.md lists the functions, and what they do not show.
 *
 * The only kernel structures read here are the registers and the owner's name and start time.
 */
#include "own_stack.h"
#include "qp_table.h"
#include <bpf/bpf_tracing.h>
#include "collwire/port_records.h"
#include "collwire/verbs_qp.h"

/* The records are for a comparison with those of ib_core: the tables of all sources stay its own.
 */
const volatile bool compared = false;
/* Functions' ends have probes. Without them a call counts when it starts, as if it succeeded. */
const volatile bool has_returns = true;

enum verbs_role {
	ROLE_CREATE,
	ROLE_MODIFY,
	ROLE_DESTROY,
};

/* No function of a role calls another one of that role, so a thread is in one call of each. */
struct verbs_call_key {
	__u64 thread;
	__u32 role; /* enum verbs_role */
	__u32 reserved;
};

struct verbs_call {
	__u64 qp;
	__u64 attr;
	__u32 mask;
	__u32 reserved;
	__u64 key; /* CW_VERBS_QP_KEY, of a queue pair that is being destroyed */
};

/* LRU: the entry of a thread that exits inside a call is never removed. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct verbs_call_key);
	__type(value, struct verbs_call);
} verbs_calls SEC(".maps");

struct device_name {
	char text[CW_NAME_BYTES];
};

/* Filled by the recorder, as verbs_gids. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, struct device_name);
	__type(value, struct cw_verbs_device);
} verbs_devices SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct cw_verbs_gid_key);
	__type(value, struct cw_verbs_gid);
} verbs_gids SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, struct cw_verbs_live_qp);
} verbs_live_qps SEC(".maps");

/* Calls that gave no record, by reason: enum cw_verbs_unread. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CW_VERBS_UNREAD_REASONS);
	__type(key, __u32);
	__type(value, __u64);
} verbs_unread SEC(".maps");

static __always_inline void count_unread(__u32 reason)
{
	__u64 *n = bpf_map_lookup_elem(&verbs_unread, &reason);

	if (n && !is_over())
		__sync_fetch_and_add(n, 1);
}

/* What a call is about. */
struct subject {
	struct cw_ibv_qp qp;
	__u64 address;
	struct device_name name;
	struct cw_verbs_device device;
};

static __always_inline bool read_subject(struct subject *s, __u64 address)
{
	struct cw_verbs_device *device;
	__u64 pointer = 0;

	__builtin_memset(s, 0, sizeof(*s));
	s->address = address;
	if (bpf_probe_read_user(&s->qp, sizeof(s->qp), (void *)address) ||
	    bpf_probe_read_user(&pointer, sizeof(pointer),
				(void *)(s->qp.context + CW_IBV_CONTEXT_DEVICE)) ||
	    bpf_probe_read_user_str(&s->name, sizeof(s->name),
				    (void *)(pointer + CW_IBV_DEVICE_NAME)) < 0) {
		count_unread(CW_VERBS_UNREAD_MEMORY);
		return false;
	}
	device = bpf_map_lookup_elem(&verbs_devices, &s->name);
	if (!device) {
		count_unread(CW_VERBS_UNREAD_DEVICE);
		return false;
	}
	s->device = *device;
	s->qp.qp_num &= CW_QPN_MASK;
	return true;
}

static __always_inline struct verbs_call_key call_of(enum verbs_role role)
{
	struct verbs_call_key key = {bpf_get_current_pid_tgid(), role, 0};

	return key;
}

static __always_inline bool wanted_here(void)
{
	return tgid_wanted(bpf_get_current_pid_tgid() >> 32);
}

static __always_inline void new_live_qp(struct cw_verbs_live_qp *qp, const struct subject *s,
					__u32 flags)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct task_struct *leader = BPF_CORE_READ(task, group_leader);

	__builtin_memset(qp, 0, sizeof(*qp));
	qp->live.key.dev_index = s->device.dev_index;
	qp->live.key.qpn = s->qp.qp_num;
	qp->live.key.generation_ns = bpf_ktime_get_ns();
	qp->live.tgid = bpf_get_current_pid_tgid() >> 32;
	qp->live.start_boottime_ns = start_boottime(leader);
	qp->live.type = s->qp.qp_type < 0xff ? s->qp.qp_type : 0xff;
	qp->live.flags = flags | CW_QP_FROM_VERBS;
	qp->live.state = flags & CW_QP_PREEXISTING ? CW_STATE_UNKNOWN : 0;
	qp->user_handle = s->address;
}

static __always_inline void keep(const struct cw_verbs_live_qp *qp)
{
	__u64 key = CW_VERBS_QP_KEY(qp->live.key.dev_index, qp->live.key.qpn);

	if (bpf_map_update_elem(&verbs_live_qps, &key, qp, BPF_ANY))
		count_loss(CW_LOSS_QP_TABLE);
	/* No address in the kernel has such a number. */
	if (!compared)
		bpf_map_update_elem(&live_qps, &key, &qp->live, BPF_ANY);
}

static __always_inline void forget(__u64 key)
{
	bpf_map_delete_elem(&verbs_live_qps, &key);
	if (!compared)
		bpf_map_delete_elem(&live_qps, &key);
}

#define RESERVE_QP_EVENT(record_kind)                                                              \
	RESERVE_RECORD(cw_qp_event, (record_kind) + (compared ? CW_KIND_COMPARED : 0),             \
		       CW_LOSS_QP_EVENT)

static __always_inline void fill_live(struct cw_qp_event *e, const struct cw_verbs_live_qp *qp)
{
	e->key = qp->live.key;
	e->tgid = qp->live.tgid;
	e->tid = (__u32)bpf_get_current_pid_tgid();
	e->start_boottime_ns = qp->live.start_boottime_ns;
	e->flags = qp->live.flags;
	e->qp_type = qp->live.type;
	e->old_state = qp->live.state;
	e->new_state = qp->live.state;
	e->gid_type = CW_GID_UNKNOWN;
	e->port = qp->port;
	e->user_handle = qp->user_handle;
}

static __always_inline void fill_names(struct cw_qp_event *e, const struct subject *s)
{
	struct task_struct *task = (void *)bpf_get_current_task();

	BPF_CORE_READ_STR_INTO(&e->comm, task, group_leader, comm);
	__builtin_memcpy(e->device, &s->name, sizeof(e->device));
}

/* NULL: the table is full, which is counted. One from before the probes gets a record. */
static __always_inline struct cw_verbs_live_qp *find_or_put(const struct subject *s)
{
	__u64 key = CW_VERBS_QP_KEY(s->device.dev_index, s->qp.qp_num);
	struct cw_verbs_live_qp *known = bpf_map_lookup_elem(&verbs_live_qps, &key);
	struct cw_verbs_live_qp fresh;
	struct cw_qp_event *e;

	if (known) {
		/* From RDMA netlink, which does not give the address. */
		if (!known->user_handle)
			known->user_handle = s->address;
		return known;
	}
	new_live_qp(&fresh, s, CW_QP_PREEXISTING);
	keep(&fresh);
	e = RESERVE_QP_EVENT(CW_KIND_QP_EXISTING);
	if (e) {
		fill_live(e, &fresh);
		fill_names(e, s);
		bpf_ringbuf_submit(e, 0);
	}
	return bpf_map_lookup_elem(&verbs_live_qps, &key);
}

/* create */

static __always_inline int created(__u64 address)
{
	struct cw_verbs_live_qp fresh;
	struct cw_qp_event *e;
	struct subject s;

	if (!read_subject(&s, address))
		return 0;
	new_live_qp(&fresh, &s, 0);
	keep(&fresh);
	e = RESERVE_QP_EVENT(CW_KIND_QP_CREATE);
	if (!e)
		return 0;
	fill_live(e, &fresh);
	fill_names(e, &s);
	e->old_state = CW_STATE_UNKNOWN;
	bpf_ringbuf_submit(e, 0);
	return 0;
}

/*
 * int ibv_cmd_create_qp(struct ibv_pd *pd, struct ibv_qp *qp, ...)
 * int ibv_cmd_create_qp_ex(struct ibv_context *context, struct verbs_qp *qp, ...), and _ex2
 * A struct verbs_qp starts with its struct ibv_qp.
 */
SEC("uprobe")
int create_enter(struct pt_regs *ctx)
{
	KEEP_OWN_STACK(ctx);
	struct verbs_call_key key = call_of(ROLE_CREATE);
	struct verbs_call call = {.qp = PT_REGS_PARM2(ctx)};

	if (wanted_here() && bpf_map_update_elem(&verbs_calls, &key, &call, BPF_ANY))
		count_loss(CW_LOSS_CALL_TABLE);
	return 0;
}

SEC("uretprobe")
int create_return(struct pt_regs *ctx)
{
	KEEP_OWN_STACK(ctx);
	struct verbs_call_key key = call_of(ROLE_CREATE);
	struct verbs_call *call = bpf_map_lookup_elem(&verbs_calls, &key);
	__u64 qp;

	if (!call)
		return 0;
	qp = call->qp;
	bpf_map_delete_elem(&verbs_calls, &key);
	return (__s32)PT_REGS_RC(ctx) ? 0 : created(qp);
}

/* struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr) */
SEC("uretprobe")
int public_create_return(struct pt_regs *ctx)
{
	KEEP_OWN_STACK(ctx);
	__u64 qp = PT_REGS_RC(ctx);

	return qp && wanted_here() ? created(qp) : 0;
}

/* change */

static __always_inline int modified(const struct verbs_call *call, __s32 result)
{
	struct cw_ibv_qp_attr attr = {};
	struct cw_verbs_live_qp *known;
	struct cw_qp_event *e;
	struct subject s;

	if (!read_subject(&s, call->qp))
		return 0;
	if (bpf_probe_read_user(&attr, sizeof(attr), (void *)call->attr)) {
		count_unread(CW_VERBS_UNREAD_MEMORY);
		return 0;
	}
	known = find_or_put(&s);
	if (!known)
		return 0;
	if (!result && call->mask & CW_IBV_QP_PORT)
		known->port = attr.port_num;
	e = RESERVE_QP_EVENT(CW_KIND_QP_STATE);
	if (e) {
		fill_live(e, known);
		fill_names(e, &s);
		e->attr_mask = call->mask;
		e->result = result;
		cw_fill_from_ibv_attr(e, &attr, call->mask);
		if (call->mask & CW_IBV_QP_AV) {
			struct cw_verbs_gid_key at = {.dev_index = s.device.dev_index};
			struct cw_verbs_gid *gid;
			__u32 port = e->port & 63;

			cw_fill_from_ibv_ah(e, &attr.ah_attr, s.device.ethernet_ports >> port & 1);
			at.port = e->port;
			at.gid_index = attr.ah_attr.sgid_index;
			gid = bpf_map_lookup_elem(&verbs_gids, &at);
			if (gid && !result && e->flags & CW_QP_GRH)
				cw_fill_from_gid(e, gid);
			cw_fill_computed_sport(e, s.device.flags);
		}
		bpf_ringbuf_submit(e, 0);
	}
	if (!result && call->mask & CW_IBV_QP_STATE)
		known->live.state = attr.qp_state;
	return 0;
}

/*
 * int ibv_cmd_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask, ...), and _ex
 * int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask)
 */
SEC("uprobe")
int modify_enter(struct pt_regs *ctx)
{
	KEEP_OWN_STACK(ctx);
	struct verbs_call_key key = call_of(ROLE_MODIFY);
	struct verbs_call call = {
		.qp = PT_REGS_PARM1(ctx), .attr = PT_REGS_PARM2(ctx), .mask = PT_REGS_PARM3(ctx)};

	if (!wanted_here())
		return 0;
	if (!has_returns)
		return modified(&call, 0);
	if (bpf_map_update_elem(&verbs_calls, &key, &call, BPF_ANY))
		count_loss(CW_LOSS_CALL_TABLE);
	return 0;
}

SEC("uretprobe")
int modify_return(struct pt_regs *ctx)
{
	KEEP_OWN_STACK(ctx);
	struct verbs_call_key key = call_of(ROLE_MODIFY);
	struct verbs_call *entry = bpf_map_lookup_elem(&verbs_calls, &key);
	struct verbs_call call;

	if (!entry)
		return 0;
	call = *entry;
	bpf_map_delete_elem(&verbs_calls, &key);
	return modified(&call, cw_verbs_result((__s32)PT_REGS_RC(ctx)));
}

/* destroy */

static __always_inline int destroyed(__u64 key)
{
	struct cw_verbs_live_qp *known = bpf_map_lookup_elem(&verbs_live_qps, &key);
	struct cw_verbs_live_qp gone;
	struct cw_qp_event *e;

	if (!known)
		return 0;
	gone = *known;
	forget(key);
	if (!compared)
		next_epoch(&gone.live);
	e = RESERVE_QP_EVENT(CW_KIND_QP_DESTROY);
	if (!e)
		return 0;
	fill_live(e, &gone);
	e->new_state = CW_STATE_UNKNOWN;
	e->port = 0;
	e->user_handle = 0;
	bpf_ringbuf_submit(e, 0);
	return 0;
}

/* int ibv_cmd_destroy_qp(struct ibv_qp *qp), int ibv_destroy_qp(struct ibv_qp *qp) */
SEC("uprobe")
int destroy_enter(struct pt_regs *ctx)
{
	KEEP_OWN_STACK(ctx);
	struct verbs_call_key key = call_of(ROLE_DESTROY);
	struct verbs_call call = {.qp = PT_REGS_PARM1(ctx)};
	struct subject s;

	/* Afterwards its memory may be free. */
	if (!wanted_here() || !read_subject(&s, call.qp) || !find_or_put(&s))
		return 0;
	call.key = CW_VERBS_QP_KEY(s.device.dev_index, s.qp.qp_num);
	if (!has_returns)
		return destroyed(call.key);
	if (bpf_map_update_elem(&verbs_calls, &key, &call, BPF_ANY))
		count_loss(CW_LOSS_CALL_TABLE);
	return 0;
}

SEC("uretprobe")
int destroy_return(struct pt_regs *ctx)
{
	KEEP_OWN_STACK(ctx);
	struct verbs_call_key key = call_of(ROLE_DESTROY);
	struct verbs_call *call = bpf_map_lookup_elem(&verbs_calls, &key);
	__u64 qp;

	if (!call)
		return 0;
	qp = call->key;
	bpf_map_delete_elem(&verbs_calls, &key);
	return (__s32)PT_REGS_RC(ctx) ? 0 : destroyed(qp);
}

/* asynchronous events */

/*
 * void ibv_ack_async_event(struct ibv_async_event *event)
 * Not ibv_get_async_event: a thread waits in it for hours, and a probe on the end of a function
 * does not see threads that were inside when it was placed. A queue pair lives until its events are
 * acknowledged.
 */
SEC("uprobe")
int ack_event(struct pt_regs *ctx)
{
	KEEP_OWN_STACK(ctx);
	struct cw_ibv_async_event event;
	struct cw_verbs_live_qp *known;
	struct subject s;

	if (!wanted_here())
		return 0;
	if (bpf_probe_read_user(&event, sizeof(event), (void *)PT_REGS_PARM1(ctx))) {
		count_unread(CW_VERBS_UNREAD_MEMORY);
		return 0;
	}
	if (!cw_ibv_event_is_of_qp(event.event_type) || !read_subject(&s, event.element))
		return 0;
	known = find_or_put(&s);
	if (!known)
		return 0;
	if (cw_ibv_event_is_error(event.event_type)) {
		struct cw_qp_event *e = RESERVE_QP_EVENT(CW_KIND_QP_ERROR);

		if (!e)
			return 0;
		fill_live(e, known);
		fill_names(e, &s);
		e->event = event.event_type;
		e->new_state = IB_QPS_ERR;
		known->live.state = IB_QPS_ERR;
		bpf_ringbuf_submit(e, 0);
	} else if (!compared) {
		struct cw_async_event *e =
			RESERVE_RECORD(cw_async_event, CW_KIND_ASYNC_EVENT, CW_LOSS_QP_EVENT);

		if (!e)
			return 0;
		e->dev_index = known->live.key.dev_index;
		e->event = event.event_type;
		e->qpn = known->live.key.qpn;
		__builtin_memcpy(e->device, &s.name, sizeof(e->device));
		bpf_ringbuf_submit(e, 0);
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
