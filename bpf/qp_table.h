/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The table of live queue pairs: their keys and owners, and the discovery of one without a create
 * record.
 */
#ifndef COLLWIRE_QP_TABLE_H
#define COLLWIRE_QP_TABLE_H

#include "shared_maps.h"
#include <bpf/bpf_core_read.h>
#include "collwire/node_records.h"
#include "collwire/qp_records.h"

#define CW_STATE_UNKNOWN 0xff

static __always_inline __u64 start_boottime(struct task_struct *leader)
{
	struct task_struct___real_start_time *old = (void *)leader;

	if (bpf_core_field_exists(leader->start_boottime))
		return BPF_CORE_READ(leader, start_boottime);
	return BPF_CORE_READ(old, real_start_time);
}

/* The owner of a queue pair: the process that made it, or the kernel. */
static __always_inline void read_owner(struct ib_qp *qp, struct cw_live_qp *live)
{
	struct task_struct *task = BPF_CORE_READ(qp, res.task);
	struct task_struct *leader;

	if (!BPF_CORE_READ(qp, uobject)) {
		live->flags |= CW_QP_KERNEL;
		return;
	}
	if (!task)
		return;
	leader = BPF_CORE_READ(task, group_leader);
	live->tgid = BPF_CORE_READ(leader, tgid);
	live->start_boottime_ns = start_boottime(leader);
}

static __always_inline void read_identity(struct ib_qp *qp, struct cw_live_qp *live, __u64 now)
{
	struct ib_device *device = BPF_CORE_READ(qp, device);
	__u32 type = BPF_CORE_READ(qp, qp_type);

	live->key.dev_index = BPF_CORE_READ(device, index);
	live->key.qpn = BPF_CORE_READ(qp, qp_num) & CW_QPN_MASK;
	live->key.generation_ns = now;
	live->type = type < 0xff ? type : 0xff;
	live->state = CW_STATE_UNKNOWN;
	read_owner(qp, live);
}

/* The fields that every queue pair event has. */
static __always_inline void fill_identity(struct cw_qp_event *e, struct ib_qp *qp,
					  const struct cw_live_qp *live)
{
	struct ib_device *device = BPF_CORE_READ(qp, device);
	struct ib_uobject *uobject = BPF_CORE_READ(qp, uobject);
	struct ib_pd *pd = BPF_CORE_READ(qp, pd);
	struct task_struct *task = BPF_CORE_READ(qp, res.task);

	e->key = live->key;
	e->tgid = live->tgid;
	e->tid = (__u32)bpf_get_current_pid_tgid();
	e->start_boottime_ns = live->start_boottime_ns;
	e->flags = live->flags;
	e->qp_type = live->type;
	e->old_state = live->state;
	e->new_state = live->state;
	e->gid_type = CW_GID_UNKNOWN;
	e->port = READ_INTEGER(qp, port);
	if (task && !(live->flags & CW_QP_KERNEL))
		BPF_CORE_READ_STR_INTO(&e->comm, task, group_leader, comm);
	BPF_CORE_READ_STR_INTO(&e->device, device, name);
	if (uobject)
		e->user_handle = BPF_CORE_READ(uobject, user_handle);
	if (pd)
		e->pdn = BPF_CORE_READ(pd, res.id);
}

/* NULL: not recorded, or table full, which is counted. A new one gets a record if `emit`. */
static __always_inline struct cw_live_qp *find_or_put_live_qp(struct ib_qp *qp, bool emit)
{
	__u64 address = (__u64)qp;
	struct cw_live_qp *known = bpf_map_lookup_elem(&live_qps, &address);
	struct cw_live_qp live = {.flags = CW_QP_PREEXISTING};
	struct cw_qp_event *e;

	if (known)
		return known;
	read_identity(qp, &live, bpf_ktime_get_ns());
	if (!tgid_wanted(live.tgid))
		return NULL;
	if (bpf_map_update_elem(&live_qps, &address, &live, BPF_NOEXIST)) {
		known = bpf_map_lookup_elem(&live_qps, &address);
		if (!known)
			count_loss(CW_LOSS_QP_TABLE);
		return known;
	}
	if (emit) {
		e = RESERVE_RECORD(cw_qp_event, CW_KIND_QP_EXISTING, CW_LOSS_QP_EVENT);
		if (e) {
			fill_identity(e, qp, &live);
			bpf_ringbuf_submit(e, 0);
		}
	}
	return bpf_map_lookup_elem(&live_qps, &address);
}

static __always_inline struct cw_live_qp *find_or_add_live_qp(struct ib_qp *qp)
{
	return find_or_put_live_qp(qp, true);
}

/* Its number may be that of another queue pair of the process from now on. */
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

#endif
