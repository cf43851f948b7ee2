/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The life of every queue pair that ib_core knows, for all drivers: create, each change of state,
 * errors, destroy, and pre-existing ones while the recorder dumps them over RDMA netlink.
 * docs/sources/qp.md lists the probes, their cost and what they miss.
 */
#include "calls.h"
#include "qp_existing.h"
#include "twice.h"
#include "collwire/node_records.h"
#include "collwire/port_records.h"
#include "collwire/qp_records.h"

struct modify_call {
	struct ib_qp *qp;
	struct ib_qp_attr *attr;
	__u32 mask;
	__u32 reserved;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, struct cw_call_key);
	__type(value, struct modify_call);
} modify_calls SEC(".maps");

struct destroy_call {
	__u64 address;
	struct cw_live_qp live;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, struct cw_call_key);
	__type(value, struct destroy_call);
} destroy_calls SEC(".maps");

struct query_call {
	struct ib_qp *qp;
	struct ib_qp_attr *attr;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, struct cw_call_key);
	__type(value, struct query_call);
} query_calls SEC(".maps");

/* create */

static __always_inline int on_restrack_add(enum chance chance, struct rdma_restrack_entry *res)
{
	struct ib_qp *qp;
	__u64 address;
	struct cw_live_qp live = {};
	struct cw_qp_event *e;

	if (BPF_CORE_READ(res, type) != RDMA_RESTRACK_QP) {
		pass_call(CW_TWICE_RESTRACK_ADD, chance);
		return 0;
	}
	if (!take_call(CW_TWICE_RESTRACK_ADD, chance, traced_call(res)))
		return 0;
	qp = (void *)res - bpf_core_field_offset(struct ib_qp, res);
	address = (__u64)qp;
	read_identity(qp, &live, bpf_ktime_get_ns());
	live.state = 0;
	if (!tgid_wanted(live.tgid))
		return 0;
	if (bpf_map_update_elem(&live_qps, &address, &live, BPF_ANY))
		count_loss(CW_LOSS_QP_TABLE);
	e = RESERVE_RECORD(cw_qp_event, CW_KIND_QP_CREATE, CW_LOSS_QP_EVENT);
	if (!e)
		return 0;
	fill_identity(e, qp, &live);
	e->old_state = CW_STATE_UNKNOWN;
	bpf_ringbuf_submit(e, 0);
	return 0;
}

SIBLING_PROGRAMS("fentry/rdma_restrack_add", restrack_add_fentry, on_restrack_add(chance, res),
		 struct rdma_restrack_entry *res)

SEC("kprobe/rdma_restrack_add")
int BPF_KPROBE(restrack_add_kprobe, struct rdma_restrack_entry *res)
{
	return on_restrack_add(CHANCE_ONLY, res);
}

/* change */

static __always_inline int modified(struct ib_qp *ib_qp, struct ib_qp_attr *attr, __u32 mask,
				    int result)
{
	struct ib_qp *qp = BPF_CORE_READ(ib_qp, real_qp);
	struct cw_live_qp *live;
	struct cw_qp_event *e;

	if (!qp)
		qp = ib_qp;
	live = find_or_add_live_qp(qp);
	if (!live)
		return 0;
	e = RESERVE_RECORD(cw_qp_event, CW_KIND_QP_STATE, CW_LOSS_QP_EVENT);
	if (e) {
		fill_identity(e, qp, live);
		e->attr_mask = mask;
		e->result = result;
		if (mask & ATTR_STATE)
			e->new_state = BPF_CORE_READ(attr, qp_state);
		fill_attributes(e, attr, mask);
		if (mask & ATTR_AV) {
			fill_address(e, &attr->ah_attr);
			if (!result)
				fill_sgid(e, qp);
			fill_udp_sport(e, qp);
		}
		bpf_ringbuf_submit(e, 0);
	}
	if (result)
		return 0;
	if (mask & ATTR_STATE) {
		live->state = BPF_CORE_READ(attr, qp_state);
		if (live->state == IB_QPS_RESET) {
			live->resets++;
			live->has_rq_psn = 0;
		}
	}
	if (mask & ATTR_PATH_MTU)
		live->path_mtu = BPF_CORE_READ(attr, path_mtu);
	if (mask & ATTR_RQ_PSN) {
		live->rq_psn = BPF_CORE_READ(attr, rq_psn) & CW_PSN_MASK;
		live->has_rq_psn = 1;
	}
	return 0;
}

static __always_inline bool owned_by_kernel(struct ib_qp *qp)
{
	return !BPF_CORE_READ(qp, uobject);
}

static __always_inline int modify_enter(struct pt_regs *ctx, bool kernel)
{
	struct cw_call_key key = kprobe_call(ctx);
	struct modify_call call = {
		.qp = (void *)PT_REGS_PARM1(ctx),
		.attr = (void *)PT_REGS_PARM2(ctx),
		.mask = PT_REGS_PARM3(ctx),
	};

	if (owned_by_kernel(call.qp) != kernel)
		return 0;
	/* An entry with this key belongs to a call whose return was missed. */
	if (bpf_map_lookup_elem(&modify_calls, &key))
		count_loss(CW_LOSS_PROBE_MISSED);
	if (bpf_map_update_elem(&modify_calls, &key, &call, BPF_ANY))
		count_loss(CW_LOSS_CALL_TABLE);
	return 0;
}

static __always_inline int modify_exit(struct pt_regs *ctx)
{
	struct cw_call_key key = kretprobe_call(ctx);
	struct modify_call *call = bpf_map_lookup_elem(&modify_calls, &key);

	if (!call)
		return 0;
	modified(call->qp, call->attr, call->mask, PT_REGS_RC(ctx));
	bpf_map_delete_elem(&modify_calls, &key);
	return 0;
}

/* fexit, for the queue pairs of one kind of owner. */
static __always_inline int modify_traced(enum cw_twice_function function, enum chance chance,
					 struct ib_qp *qp, struct ib_qp_attr *attr, __u32 mask,
					 int result)
{
	if (owned_by_kernel(qp) != (function == CW_TWICE_KERNEL_MODIFY))
		pass_call(function, chance);
	else if (take_call(function, chance, traced_call(qp)))
		modified(qp, attr, mask, result);
	return 0;
}

SIBLING_PROGRAMS("fexit/ib_modify_qp_with_udata", user_modify_fexit,
		 modify_traced(CW_TWICE_USER_MODIFY, chance, qp, attr, mask, result),
		 struct ib_qp *qp, struct ib_qp_attr *attr, int mask, void *udata, int result)

SEC("kprobe/ib_modify_qp_with_udata")
int user_modify_kprobe(struct pt_regs *ctx)
{
	return modify_enter(ctx, false);
}

SEC("kretprobe/ib_modify_qp_with_udata")
int user_modify_kretprobe(struct pt_regs *ctx)
{
	return modify_exit(ctx);
}

/* The kernel's own queue pairs (MAD agents, storage) take only this way. */
SIBLING_PROGRAMS("fexit/_ib_modify_qp", kernel_modify_fexit,
		 modify_traced(CW_TWICE_KERNEL_MODIFY, chance, qp, attr, mask, result),
		 struct ib_qp *qp, struct ib_qp_attr *attr, int mask, void *udata, int result)

SEC("kprobe/_ib_modify_qp")
int kernel_modify_kprobe(struct pt_regs *ctx)
{
	return modify_enter(ctx, true);
}

SEC("kretprobe/_ib_modify_qp")
int kernel_modify_kretprobe(struct pt_regs *ctx)
{
	return modify_exit(ctx);
}

/* destroy */

static __always_inline int destroy_enter(struct cw_call_key key, struct ib_qp *qp)
{
	struct destroy_call call = {.address = (__u64)qp};
	struct cw_live_qp *live = find_or_add_live_qp(qp);

	if (!live)
		return 0;
	call.live = *live;
	if (bpf_map_lookup_elem(&destroy_calls, &key))
		count_loss(CW_LOSS_PROBE_MISSED);
	if (bpf_map_update_elem(&destroy_calls, &key, &call, BPF_ANY))
		count_loss(CW_LOSS_CALL_TABLE);
	return 0;
}

static __always_inline int destroy_exit(struct cw_call_key key, int result)
{
	struct destroy_call *call = bpf_map_lookup_elem(&destroy_calls, &key);
	struct cw_live_qp *now;
	struct cw_qp_event *e;

	if (!call)
		return 0;
	if (result)
		goto out;
	/* The memory is free already: a new queue pair may live there, with another generation. */
	now = bpf_map_lookup_elem(&live_qps, &call->address);
	if (now && now->key.generation_ns == call->live.key.generation_ns)
		bpf_map_delete_elem(&live_qps, &call->address);
	if (!(call->live.flags & CW_QP_KERNEL))
		next_epoch(&call->live);
	e = RESERVE_RECORD(cw_qp_event, CW_KIND_QP_DESTROY, CW_LOSS_QP_EVENT);
	if (e) {
		e->key = call->live.key;
		e->tgid = call->live.tgid;
		e->tid = (__u32)bpf_get_current_pid_tgid();
		e->start_boottime_ns = call->live.start_boottime_ns;
		e->flags = call->live.flags;
		e->qp_type = call->live.type;
		e->old_state = call->live.state;
		e->new_state = CW_STATE_UNKNOWN;
		e->gid_type = CW_GID_UNKNOWN;
		bpf_ringbuf_submit(e, 0);
	}
out:
	bpf_map_delete_elem(&destroy_calls, &key);
	return 0;
}

static __always_inline int destroy_traced(enum chance chance, struct ib_qp *qp)
{
	struct cw_call_key key = traced_call(qp);

	return take_call(CW_TWICE_DESTROY, chance, key) ? destroy_enter(key, qp) : 0;
}

static __always_inline int destroyed_traced(enum chance chance, struct ib_qp *qp, int result)
{
	struct cw_call_key key = traced_call(qp);

	return take_call(CW_TWICE_DESTROY_EXIT, chance, key) ? destroy_exit(key, result) : 0;
}

SIBLING_PROGRAMS("fentry/ib_destroy_qp_user", destroy_fentry, destroy_traced(chance, qp),
		 struct ib_qp *qp)

SIBLING_PROGRAMS("fexit/ib_destroy_qp_user", destroy_fexit, destroyed_traced(chance, qp, result),
		 struct ib_qp *qp, void *udata, int result)

SEC("kprobe/ib_destroy_qp_user")
int BPF_KPROBE(destroy_kprobe, struct ib_qp *qp)
{
	return destroy_enter(kprobe_call(ctx), qp);
}

SEC("kretprobe/ib_destroy_qp_user")
int BPF_KRETPROBE(destroy_kretprobe, int result)
{
	return destroy_exit(kretprobe_call(ctx), result);
}

/* pre-existing queue pairs */

static __always_inline int query_traced(enum chance chance, struct ib_qp *qp,
					struct ib_qp_attr *attr, int result)
{
	if (!called_by_recorder())
		pass_call(CW_TWICE_QUERY, chance);
	else if (take_call(CW_TWICE_QUERY, chance, traced_call(qp)))
		queried(qp, attr, result);
	return 0;
}

SIBLING_PROGRAMS("fexit/ib_query_qp", query_fexit, query_traced(chance, qp, attr, result),
		 struct ib_qp *qp, struct ib_qp_attr *attr, int mask, void *init, int result)

SEC("kprobe/ib_query_qp")
int BPF_KPROBE(query_kprobe, struct ib_qp *qp, struct ib_qp_attr *attr)
{
	struct cw_call_key key = kprobe_call(ctx);
	struct query_call call = {qp, attr};

	if (called_by_recorder() && bpf_map_update_elem(&query_calls, &key, &call, BPF_ANY))
		count_loss(CW_LOSS_CALL_TABLE);
	return 0;
}

SEC("kretprobe/ib_query_qp")
int BPF_KRETPROBE(query_kretprobe, int result)
{
	struct cw_call_key key = kretprobe_call(ctx);
	struct query_call *call = bpf_map_lookup_elem(&query_calls, &key);

	if (!call)
		return 0;
	queried(call->qp, call->attr, result);
	bpf_map_delete_elem(&query_calls, &key);
	return 0;
}

/* asynchronous events of user queue pairs */

/* Events after which the queue pair transfers nothing more. */
static __always_inline bool is_error(__u32 event)
{
	return event == IB_EVENT_QP_FATAL || event == IB_EVENT_QP_REQ_ERR ||
	       event == IB_EVENT_QP_ACCESS_ERR;
}

static __always_inline int on_qp_event(enum chance chance, struct ib_event *event)
{
	struct ib_qp *qp = BPF_CORE_READ(event, element.qp);
	__u32 number = BPF_CORE_READ(event, event);
	struct cw_live_qp *live;

	if (!take_call(CW_TWICE_QP_EVENT, chance, traced_call(event)))
		return 0;
	live = find_or_add_live_qp(qp);
	if (!live)
		return 0;
	if (is_error(number)) {
		struct cw_qp_event *e =
			RESERVE_RECORD(cw_qp_event, CW_KIND_QP_ERROR, CW_LOSS_QP_EVENT);

		if (!e)
			return 0;
		fill_identity(e, qp, live);
		e->event = number;
		e->new_state = IB_QPS_ERR;
		live->state = IB_QPS_ERR;
		bpf_ringbuf_submit(e, 0);
	} else {
		struct cw_async_event *e =
			RESERVE_RECORD(cw_async_event, CW_KIND_ASYNC_EVENT, CW_LOSS_QP_EVENT);

		if (!e)
			return 0;
		e->dev_index = live->key.dev_index;
		e->event = number;
		e->qpn = live->key.qpn;
		BPF_CORE_READ_STR_INTO(&e->device, qp, device, name);
		bpf_ringbuf_submit(e, 0);
	}
	return 0;
}

SIBLING_PROGRAMS("fentry/ib_uverbs_qp_event_handler", qp_event_fentry, on_qp_event(chance, event),
		 struct ib_event *event)

SEC("kprobe/ib_uverbs_qp_event_handler")
int BPF_KPROBE(qp_event_kprobe, struct ib_event *event)
{
	return on_qp_event(CHANCE_ONLY, event);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
