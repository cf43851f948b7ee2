/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The attributes and addresses of a queue pair, from a modify or query call. */
#ifndef COLLWIRE_QP_ATTRIBUTES_H
#define COLLWIRE_QP_ATTRIBUTES_H

#include "qp_table.h"
#include "collwire/node_records.h"
#include "collwire/qp_records.h"
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
	/* what a query of a pre-existing queue pair may return */
	ATTR_ALL = 0x1fffff,
};

enum {
	AH_FLAG_GRH = 1,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
/* Only in the BTF of the module rdma_rxe. */
struct rxe_qp {
	struct ib_qp ibqp;
	__u16 src_port;
};
#pragma clang attribute pop

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
		/*
		 * Before Linux 5.15 rxe chooses the port by another rule, so read its choice or
		 * leave it out.
		 */
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

/* modify */

#endif
