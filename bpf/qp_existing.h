/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Pre-existing queue pairs, from the recorder's RDMA netlink query. */
#ifndef COLLWIRE_QP_EXISTING_H
#define COLLWIRE_QP_EXISTING_H

#include "qp_attributes.h"
#include "collwire/qp_records.h"

const volatile __u64 recorder_pidns_dev = 0;
const volatile __u64 recorder_pidns_ino = 0;
const volatile __u32 recorder_tgid = 0;

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
	struct cw_live_qp *live = find_or_put_live_qp(qp, result != 0);
	__u32 state = CW_STATE_UNKNOWN;
	struct cw_qp_event *e;

	/*
	 * A queue pair whose creation was recorded has more facts than a query returns. A dump is
	 * repeated where the kernel may have left some out: one record of each is enough.
	 */
	if (!live || !(live->flags & CW_QP_PREEXISTING) || live->emitted)
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
			/* A provider without an answer leaves the zero that nldev put there. */
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
	live->emitted = !result;
	return 0;
}

#endif
