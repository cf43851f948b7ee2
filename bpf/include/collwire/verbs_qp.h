/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Queue pairs as libibverbs' calls describe them: the layout of struct ibv_qp_attr, and the fields
 * of a queue pair record that follow from it. For the BPF programs and for C++ alike. Source:
 * libibverbs/verbs.h, the same on x86-64 in rdma-core 15 to 65; tests/unit/verbs_layout_test.cpp
 * checks it against <infiniband/verbs.h>.
 */
#ifndef COLLWIRE_VERBS_QP_H
#define COLLWIRE_VERBS_QP_H

#include "collwire/node_records.h"
#include "collwire/qp_records.h"
#include "collwire/roce.h"
#include "collwire/tables.h"
#include "collwire/verbs.h"

/* enum ibv_qp_attr_mask; the kernel's enum ib_qp_attr_mask has the same numbers. */
enum cw_ibv_mask {
	CW_IBV_QP_STATE = 1 << 0,
	CW_IBV_QP_PKEY_INDEX = 1 << 4,
	CW_IBV_QP_PORT = 1 << 5,
	CW_IBV_QP_QKEY = 1 << 6,
	CW_IBV_QP_AV = 1 << 7,
	CW_IBV_QP_PATH_MTU = 1 << 8,
	CW_IBV_QP_TIMEOUT = 1 << 9,
	CW_IBV_QP_RETRY_CNT = 1 << 10,
	CW_IBV_QP_RNR_RETRY = 1 << 11,
	CW_IBV_QP_RQ_PSN = 1 << 12,
	CW_IBV_QP_MAX_QP_RD_ATOMIC = 1 << 13,
	CW_IBV_QP_MIN_RNR_TIMER = 1 << 15,
	CW_IBV_QP_SQ_PSN = 1 << 16,
	CW_IBV_QP_DEST_QPN = 1 << 20,
};

/* struct ibv_ah_attr */
struct cw_ibv_ah_attr {
	__u8 dgid[16];
	__u32 flow_label;
	__u8 sgid_index;
	__u8 hop_limit;
	__u8 traffic_class;
	__u8 reserved;
	__u16 dlid;
	__u8 sl;
	__u8 src_path_bits;
	__u8 static_rate;
	__u8 is_global;
	__u8 port_num;
	__u8 reserved2;
};

/* struct ibv_qp_attr up to alt_timeout: what follows is younger than the struct. */
struct cw_ibv_qp_attr {
	__u32 qp_state;
	__u32 cur_qp_state;
	__u32 path_mtu;
	__u32 path_mig_state;
	__u32 qkey;
	__u32 rq_psn;
	__u32 sq_psn;
	__u32 dest_qp_num;
	__u32 qp_access_flags;
	__u32 cap[5];
	struct cw_ibv_ah_attr ah_attr;
	struct cw_ibv_ah_attr alt_ah_attr;
	__u16 pkey_index;
	__u16 alt_pkey_index;
	__u8 en_sqd_async_notify;
	__u8 sq_draining;
	__u8 max_rd_atomic;
	__u8 max_dest_rd_atomic;
	__u8 min_rnr_timer;
	__u8 port_num;
	__u8 timeout;
	__u8 retry_cnt;
	__u8 rnr_retry;
	__u8 alt_port_num;
	__u8 alt_timeout;
	__u8 reserved;
};

/* A device under the name that libibverbs gives it. Key: char[CW_NAME_BYTES]. */
struct cw_verbs_device {
	__u32 dev_index;
	__u32 flags;	      /* enum cw_verbs_device_flags */
	__u64 ethernet_ports; /* bit N: port N has Ethernet below it */
};

enum cw_verbs_device_flags {
	CW_VERBS_COMPUTED_SPORT = 1 << 0, /* its driver takes the UDP source port from cw_udp_sport
					   */
};

/* An entry of a port's table of addresses. */
struct cw_verbs_gid_key {
	__u32 dev_index;
	__u32 port;
	__u32 gid_index;
};

struct cw_verbs_gid {
	__u8 gid[16];
	__u32 type; /* enum cw_gid_type */
	__u32 reserved;
};

/* A live queue pair. Key: device index in the upper half, number in the lower. */
struct cw_verbs_live_qp {
	struct cw_live_qp live;
	__u64 user_handle;
	__u32 port;
	__u32 reserved;
};

/* enum ibv_event_type; the kernel's enum ib_event_type has the same numbers. */
enum cw_ibv_event {
	CW_IBV_EVENT_QP_FATAL = 1,
	CW_IBV_EVENT_QP_REQ_ERR = 2,
	CW_IBV_EVENT_QP_ACCESS_ERR = 3,
	CW_IBV_EVENT_PATH_MIG_ERR = 7, /* the last one in a row that is of a queue pair */
	CW_IBV_EVENT_QP_LAST_WQE_REACHED = 16,
};

/* struct ibv_async_event */
struct cw_ibv_async_event {
	__u64 element; /* of a queue pair's event: address of struct ibv_qp */
	__u32 event_type;
	__u32 reserved;
};

/* Whether its element is a queue pair. */
CW_INLINE int cw_ibv_event_is_of_qp(__u32 event_type)
{
	return (event_type >= CW_IBV_EVENT_QP_FATAL && event_type <= CW_IBV_EVENT_PATH_MIG_ERR) ||
	       event_type == CW_IBV_EVENT_QP_LAST_WQE_REACHED;
}

/* Whether the queue pair transfers nothing more after it. */
CW_INLINE int cw_ibv_event_is_error(__u32 event_type)
{
	return event_type >= CW_IBV_EVENT_QP_FATAL && event_type <= CW_IBV_EVENT_QP_ACCESS_ERR;
}

/* Why a call gave no record. */
enum cw_verbs_unread {
	CW_VERBS_UNREAD_MEMORY, /* its page is not in memory */
	CW_VERBS_UNREAD_DEVICE, /* its device is not known */
	CW_VERBS_UNREAD_REASONS,
};

#define CW_VERBS_QP_KEY(dev_index, qpn) ((__u64)(dev_index) << 32 | (qpn))

/*
 * libibverbs' ibv_cmd_* functions, and ibv_modify_qp, return errno or -errno: the value of a
 * record's field.
 */
CW_INLINE __s32 cw_verbs_result(__s32 returned)
{
	return returned > 0 ? -returned : returned;
}

/* A call's attributes: those that its mask names. */
CW_INLINE void cw_fill_from_ibv_attr(struct cw_qp_event *e, const struct cw_ibv_qp_attr *attr,
				     __u32 mask)
{
	if (mask & CW_IBV_QP_STATE)
		e->new_state = (__u8)(attr->qp_state < 0xff ? attr->qp_state : 0xff);
	if (mask & CW_IBV_QP_PORT)
		e->port = attr->port_num;
	if (mask & CW_IBV_QP_PATH_MTU) {
		e->path_mtu = (__u8)attr->path_mtu;
		e->flags |= CW_QP_PATH_MTU;
	}
	if (mask & CW_IBV_QP_DEST_QPN) {
		e->dest_qpn = attr->dest_qp_num & CW_QPN_MASK;
		e->flags |= CW_QP_DEST;
	}
	if (mask & CW_IBV_QP_RQ_PSN) {
		e->rq_psn = attr->rq_psn & CW_PSN_MASK;
		e->flags |= CW_QP_PSN_RQ;
	}
	if (mask & CW_IBV_QP_SQ_PSN) {
		e->sq_psn = attr->sq_psn & CW_PSN_MASK;
		e->flags |= CW_QP_PSN_SQ;
	}
	if (mask & CW_IBV_QP_QKEY)
		e->qkey = attr->qkey;
	if (mask & CW_IBV_QP_PKEY_INDEX)
		e->pkey_index = attr->pkey_index;
	if (mask & CW_IBV_QP_TIMEOUT)
		e->timeout = attr->timeout;
	if (mask & CW_IBV_QP_RETRY_CNT)
		e->retry_count = attr->retry_cnt;
	if (mask & CW_IBV_QP_RNR_RETRY)
		e->rnr_retry = attr->rnr_retry;
	if (mask & CW_IBV_QP_MIN_RNR_TIMER)
		e->min_rnr_timer = attr->min_rnr_timer;
	if (mask & CW_IBV_QP_MAX_QP_RD_ATOMIC)
		e->max_rd_atomic = attr->max_rd_atomic;
}

/*
 * The address. On Ethernet the LID is whatever the program left there: the kernel ignores it, and
 * finds the MAC address itself.
 */
CW_INLINE void cw_fill_from_ibv_ah(struct cw_qp_event *e, const struct cw_ibv_ah_attr *ah,
				   int ethernet)
{
	e->service_level = ah->sl;
	e->static_rate = ah->static_rate;
	if (!e->port)
		e->port = ah->port_num;
	if (ah->is_global) {
		e->flags |= CW_QP_GRH;
		__builtin_memcpy(e->dgid, ah->dgid, sizeof(e->dgid));
		e->flow_label = ah->flow_label;
		e->hop_limit = ah->hop_limit;
		e->traffic_class = ah->traffic_class;
		e->sgid_index = ah->sgid_index;
	}
	if (!ethernet)
		e->dlid = ah->dlid;
	e->flags |= CW_QP_ADDRESS;
}

CW_INLINE void cw_fill_from_gid(struct cw_qp_event *e, const struct cw_verbs_gid *gid)
{
	__builtin_memcpy(e->sgid, gid->gid, sizeof(e->sgid));
	e->gid_type = (__u8)gid->type;
	e->flags |= CW_QP_SGID;
}

/* The kernel's rule, for drivers that follow it. After the addresses. */
CW_INLINE void cw_fill_computed_sport(struct cw_qp_event *e, __u32 device_flags)
{
	if (!(device_flags & CW_VERBS_COMPUTED_SPORT) || e->gid_type != CW_GID_ROCE_V2 ||
	    !(e->flags & CW_QP_DEST) || !(e->flags & CW_QP_ADDRESS))
		return;
	e->udp_sport = cw_udp_sport(e->flow_label, e->key.qpn, e->dest_qpn);
	e->flags |= CW_QP_UDP_SPORT;
}

CW_ASSERT_SIZE(cw_ibv_ah_attr, 32);
CW_ASSERT_SIZE(cw_ibv_qp_attr, 136);
CW_ASSERT_SIZE(cw_verbs_device, 16);
CW_ASSERT_SIZE(cw_verbs_gid_key, 12);
CW_ASSERT_SIZE(cw_verbs_gid, 24);
CW_ASSERT_SIZE(cw_verbs_live_qp, 64);

#endif
