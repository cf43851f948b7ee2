/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The life of every queue pair that ib_core knows, whoever makes the hardware: create, each change
 * of state, errors, destroy, and, while the recorder dumps them over RDMA netlink, those that were
 * there before. docs/sources/qp.md says what each probe sits on, what it costs and what it misses.
 */
#include "qp_table.h"
#include "calls.h"
#include "collwire/roce.h"

/* enum ib_qp_attr_mask */
enum {
	ATTR_STATE = 1 << 0,
	ATTR_PKEY_INDEX = 1 << 4,
	ATTR_QKEY = 1 << 6,
	ATTR_AV = 1 << 7,
	ATTR_PATH_MTU = 1 << 8,
	ATTR_TIMEOUT = 1 << 9,
	ATTR_RETRY_CNT = 1 << 10,
	ATTR_RNR_RETRY = 1 << 11,
	ATTR_RQ_PSN = 1 << 12,
	ATTR_MAX_QP_RD_ATOMIC = 1 << 13,
	ATTR_MIN_RNR_TIMER = 1 << 15,
	ATTR_SQ_PSN = 1 << 16,
	ATTR_DEST_QPN = 1 << 20,
	/* what a queue pair that existed before us may tell of itself */
	ATTR_ALL = 0x1fffff,
};

enum {
	AH_FLAG_GRH = 1,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
/* Only the BTF of the module rdma_rxe has it. */
struct rxe_qp {
	struct ib_qp ibqp;
	__u16 src_port;
};
#pragma clang attribute pop

const volatile __u64 recorder_pidns_dev = 0;
const volatile __u64 recorder_pidns_ino = 0;
const volatile __u32 recorder_tgid = 0;

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

/* ---- create --------------------------------------------------------------------------------- */

static __always_inline int on_restrack_add(struct rdma_restrack_entry *res)
{
	struct ib_qp *qp;
	__u64 address;
	struct cw_live_qp live = {};
	struct cw_qp_event *e;

	if (BPF_CORE_READ(res, type) != RDMA_RESTRACK_QP)
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

SEC("fentry/rdma_restrack_add")
int BPF_PROG(restrack_add_fentry, struct rdma_restrack_entry *res)
{
	return on_restrack_add(res);
}

SEC("kprobe/rdma_restrack_add")
int BPF_KPROBE(restrack_add_kprobe, struct rdma_restrack_entry *res)
{
	return on_restrack_add(res);
}

/* ---- attributes ----------------------------------------------------------------------------- */

static __always_inline void fill_address(struct cw_qp_event *e, const struct rdma_ah_attr *ah)
{
	__u32 type = BPF_CORE_READ(ah, type);

	e->service_level = BPF_CORE_READ(ah, sl);
	e->static_rate = BPF_CORE_READ(ah, static_rate);
	if (BPF_CORE_READ(ah, ah_flags) & AH_FLAG_GRH) {
		e->flags |= CW_QP_GRH;
		BPF_CORE_READ_INTO(&e->dgid, ah, grh.dgid);
		e->flow_label = BPF_CORE_READ(ah, grh.flow_label);
		e->hop_limit = BPF_CORE_READ(ah, grh.hop_limit);
		e->traffic_class = BPF_CORE_READ(ah, grh.traffic_class);
		e->sgid_index = BPF_CORE_READ(ah, grh.sgid_index);
	}
	if (type == RDMA_AH_ATTR_TYPE_ROCE)
		bpf_core_read(&e->dmac, 6, &ah->roce.dmac);
	else if (type == RDMA_AH_ATTR_TYPE_IB)
		e->dlid = BPF_CORE_READ(ah, ib.dlid);
	else if (type == RDMA_AH_ATTR_TYPE_OPA)
		e->dlid = BPF_CORE_READ(ah, opa.dlid);
	e->flags |= CW_QP_ADDRESS;
}

static __always_inline void fill_sgid(struct cw_qp_event *e, struct ib_qp *qp)
{
	/* attr->ah_attr.grh.sgid_attr is valid only inside the call; the queue pair holds a
	 * reference to its own. */
	const struct ib_gid_attr *sgid = BPF_CORE_READ(qp, av_sgid_attr);

	if (!sgid)
		return;
	BPF_CORE_READ_INTO(&e->sgid, sgid, gid);
	e->gid_type = BPF_CORE_READ(sgid, gid_type);
	e->sgid_index = BPF_CORE_READ(sgid, index);
	e->flags |= CW_QP_SGID;
}

static __always_inline void fill_udp_sport(struct cw_qp_event *e, struct ib_qp *qp)
{
	__u32 driver;

	if (e->gid_type != CW_GID_ROCE_V2 || !(e->flags & CW_QP_DEST) ||
	    !(e->flags & CW_QP_ADDRESS))
		return;
	driver = BPF_CORE_READ(qp, device, ops.driver_id);
	if (driver == RDMA_DRIVER_RXE) {
		/* Before Linux 5.15 rxe goes by another rule, so take what it chose or nothing. */
		struct rxe_qp *rxe;

		if (!bpf_core_type_exists(struct rxe_qp))
			return;
		rxe = (void *)qp - bpf_core_field_offset(struct rxe_qp, ibqp);
		e->udp_sport = BPF_CORE_READ(rxe, src_port);
	} else if (driver == RDMA_DRIVER_MLX5 || driver == RDMA_DRIVER_IRDMA ||
		   driver == RDMA_DRIVER_HNS || driver == RDMA_DRIVER_MANA) {
		e->udp_sport = cw_udp_sport(e->flow_label, e->key.qpn, e->dest_qpn);
	} else {
		return;
	}
	e->flags |= CW_QP_UDP_SPORT;
}

static __always_inline void fill_attributes(struct cw_qp_event *e, const struct ib_qp_attr *attr,
					    __u32 mask)
{
	if (mask & ATTR_PATH_MTU) {
		e->path_mtu = BPF_CORE_READ(attr, path_mtu);
		e->flags |= CW_QP_PATH_MTU;
	}
	if (mask & ATTR_DEST_QPN) {
		e->dest_qpn = BPF_CORE_READ(attr, dest_qp_num) & CW_QPN_MASK;
		e->flags |= CW_QP_DEST;
	}
	if (mask & ATTR_RQ_PSN) {
		e->rq_psn = BPF_CORE_READ(attr, rq_psn) & CW_PSN_MASK;
		e->flags |= CW_QP_PSN_RQ;
	}
	if (mask & ATTR_SQ_PSN) {
		e->sq_psn = BPF_CORE_READ(attr, sq_psn) & CW_PSN_MASK;
		e->flags |= CW_QP_PSN_SQ;
	}
	if (mask & ATTR_QKEY)
		e->qkey = BPF_CORE_READ(attr, qkey);
	if (mask & ATTR_PKEY_INDEX)
		e->pkey_index = BPF_CORE_READ(attr, pkey_index);
	if (mask & ATTR_TIMEOUT)
		e->timeout = BPF_CORE_READ(attr, timeout);
	if (mask & ATTR_RETRY_CNT)
		e->retry_count = BPF_CORE_READ(attr, retry_cnt);
	if (mask & ATTR_RNR_RETRY)
		e->rnr_retry = BPF_CORE_READ(attr, rnr_retry);
	if (mask & ATTR_MIN_RNR_TIMER)
		e->min_rnr_timer = BPF_CORE_READ(attr, min_rnr_timer);
	if (mask & ATTR_MAX_QP_RD_ATOMIC)
		e->max_rd_atomic = BPF_CORE_READ(attr, max_rd_atomic);
}

/* ---- modify --------------------------------------------------------------------------------- */

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
	/* An entry with this key is of a call whose return went by unseen. */
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

SEC("fexit/ib_modify_qp_with_udata")
int BPF_PROG(user_modify_fexit, struct ib_qp *qp, struct ib_qp_attr *attr, int mask, void *udata,
	     int result)
{
	return owned_by_kernel(qp) ? 0 : modified(qp, attr, mask, result);
}

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

/* The kernel's own queue pairs (MAD agents, storage) come this way only. */
SEC("fexit/_ib_modify_qp")
int BPF_PROG(kernel_modify_fexit, struct ib_qp *qp, struct ib_qp_attr *attr, int mask, void *udata,
	     int result)
{
	return owned_by_kernel(qp) ? modified(qp, attr, mask, result) : 0;
}

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

/* ---- destroy -------------------------------------------------------------------------------- */

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

static __always_inline void next_epoch(const struct cw_live_qp *live)
{
	struct cw_epoch_key key = {live->tgid, live->key.qpn};
	__u32 *epoch = bpf_map_lookup_elem(&post_epochs, &key);
	__u32 first = 1;

	if (epoch)
		__sync_fetch_and_add(epoch, 1);
	else
		bpf_map_update_elem(&post_epochs, &key, &first, BPF_ANY);
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

SEC("fentry/ib_destroy_qp_user")
int BPF_PROG(destroy_fentry, struct ib_qp *qp)
{
	return destroy_enter(traced_call(qp), qp);
}

SEC("fexit/ib_destroy_qp_user")
int BPF_PROG(destroy_fexit, struct ib_qp *qp, void *udata, int result)
{
	return destroy_exit(traced_call(qp), result);
}

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

/* ---- those that were there before ----------------------------------------------------------- */

static __always_inline bool called_by_recorder(void)
{
	struct bpf_pidns_info in_namespace = {};

	/* The recorder knows its number in its own pid namespace only. */
	if (bpf_get_ns_current_pid_tgid(recorder_pidns_dev, recorder_pidns_ino, &in_namespace,
					sizeof(in_namespace)))
		return false;
	return in_namespace.tgid == recorder_tgid;
}

static __always_inline int queried(struct ib_qp *qp, struct ib_qp_attr *attr, int result)
{
	struct cw_live_qp *live = find_or_add_live_qp(qp);
	__u32 state = CW_STATE_UNKNOWN;
	struct cw_qp_event *e;

	/* What was made under our eyes has told more than a query can. */
	if (!live || !(live->flags & CW_QP_PREEXISTING))
		return 0;
	e = RESERVE_RECORD(cw_qp_event, CW_KIND_QP_EXISTING, CW_LOSS_QP_EVENT);
	if (!e)
		return 0;
	fill_identity(e, qp, live);
	e->result = result;
	if (!result) {
		__u32 mask = ATTR_SQ_PSN | ATTR_QKEY | ATTR_PKEY_INDEX;
		bool connected = live->type == IB_QPT_RC || live->type == IB_QPT_UC ||
				 live->type == IB_QPT_XRC_INI || live->type == IB_QPT_XRC_TGT;

		state = BPF_CORE_READ(attr, qp_state);
		live->state = state;
		e->new_state = state;
		/* Before RTR there is no address; an error state may be reached with or without
		 * one. */
		if (connected && state >= IB_QPS_RTR) {
			mask |= ATTR_PATH_MTU | ATTR_RQ_PSN | ATTR_TIMEOUT | ATTR_RETRY_CNT |
				ATTR_RNR_RETRY | ATTR_MIN_RNR_TIMER | ATTR_MAX_QP_RD_ATOMIC;
			/* A provider that does not answer this leaves the zero that nldev put
			 * there. */
			if (BPF_CORE_READ(attr, dest_qp_num))
				mask |= ATTR_DEST_QPN;
		}
		if (mask & ATTR_PATH_MTU)
			live->path_mtu = BPF_CORE_READ(attr, path_mtu);
		fill_attributes(e, attr, mask);
		if (mask & ATTR_DEST_QPN) {
			fill_sgid(e, qp);
			if (BPF_CORE_READ(attr, ah_attr.ah_flags) ||
			    BPF_CORE_READ(attr, ah_attr.type) == RDMA_AH_ATTR_TYPE_IB)
				fill_address(e, &attr->ah_attr);
			fill_udp_sport(e, qp);
		}
	}
	bpf_ringbuf_submit(e, 0);
	return 0;
}

SEC("fexit/ib_query_qp")
int BPF_PROG(query_fexit, struct ib_qp *qp, struct ib_qp_attr *attr, int mask, void *init,
	     int result)
{
	return called_by_recorder() ? queried(qp, attr, result) : 0;
}

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

/* ---- asynchronous events of user queue pairs ------------------------------------------------ */

/* Those after which the queue pair carries nothing any more */
static __always_inline bool is_error(__u32 event)
{
	return event == IB_EVENT_QP_FATAL || event == IB_EVENT_QP_REQ_ERR ||
	       event == IB_EVENT_QP_ACCESS_ERR;
}

static __always_inline int on_qp_event(struct ib_event *event)
{
	struct ib_qp *qp = BPF_CORE_READ(event, element.qp);
	__u32 number = BPF_CORE_READ(event, event);
	struct cw_live_qp *live = find_or_add_live_qp(qp);

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

SEC("fentry/ib_uverbs_qp_event_handler")
int BPF_PROG(qp_event_fentry, struct ib_event *event)
{
	return on_qp_event(event);
}

SEC("kprobe/ib_uverbs_qp_event_handler")
int BPF_KPROBE(qp_event_kprobe, struct ib_event *event)
{
	return on_qp_event(event);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
