/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The records of queue pairs. */
#ifndef COLLWIRE_QP_RECORDS_H
#define COLLWIRE_QP_RECORDS_H

#include "collwire/record.h"

/* A queue pair of a node for its whole life. QP numbers repeat over devices and over time. */
struct cw_qp_key {
	__u32 dev_index; /* ib_device.index */
	__u32 qpn;
	__u64 generation_ns; /* monotonic time of its creation, or of its discovery if pre-existing
			      */
};

enum cw_qp_flags {
	CW_QP_KERNEL = 1 << 0,	    /* owned by the kernel, not by a process */
	CW_QP_PREEXISTING = 1 << 1, /* existed before the probes */
	CW_QP_ADDRESS = 1 << 2,	    /* dgid, dlid, service_level ... are set */
	CW_QP_GRH = 1 << 3,	    /* the address has a global routing header */
	CW_QP_SGID = 1 << 4,	    /* sgid and gid_type are set */
	CW_QP_DEST = 1 << 5,	    /* dest_qpn is set */
	CW_QP_PATH_MTU = 1 << 6,
	CW_QP_PSN_RQ = 1 << 7,
	CW_QP_PSN_SQ = 1 << 8,
	CW_QP_UDP_SPORT = 1 << 9,     /* computed from flow label or QP numbers */
	CW_QP_DEVX = 1 << 10,	      /* made through DEVX: seen only in the driver's commands */
	CW_QP_FROM_NETLINK = 1 << 11, /* read from the RDMA netlink dump alone, without the probe */
	CW_QP_FROM_VERBS = 1 << 12,   /* from calls of libibverbs, not from ib_core */
	/*
	 * dgid, dlid, sgid and path_mtu are from NCCL's memory: the rest of the address is not
	 * known.
	 */
	CW_QP_FROM_NCCL = 1 << 13,
};

struct cw_qp_event {
	struct cw_header header;
	struct cw_qp_key key;
	__u32 tgid;		 /* of the owner; 0: kernel */
	__u32 tid;		 /* that made this call */
	__u64 start_boottime_ns; /* of the owner's thread group leader */
	char comm[CW_COMM_BYTES];
	char device[CW_NAME_BYTES];
	__u64 user_handle; /* address of struct ibv_qp in the owner, 0: not known */
	__u32 flags;	   /* enum cw_qp_flags */
	__u32 attr_mask;   /* enum ib_qp_attr_mask of the call */
	__s32 result;	   /* of the call: 0 or -errno */
	__u32 event;	   /* QP_ERROR: enum ib_event_type */
	__u8 qp_type; /* enum ib_qp_type: 2 RC, 3 UC, 4 UD, 9 XRC_INI, 10 XRC_TGT, 0 SMI, 1 GSI,
			 0xff driver or unknown */
	__u8 old_state;
	__u8 new_state; /* enum ib_qp_state: 0 RESET 1 INIT 2 RTR 3 RTS 4 SQD 5 SQE 6 ERR; 0xff not
			   known */
	__u8 port;
	__u8 path_mtu; /* enum ib_mtu: 1 256 ... 5 4096 */
	__u8 service_level;
	__u8 traffic_class;
	__u8 hop_limit;
	__u8 gid_type; /* enum cw_gid_type */
	__u8 sgid_index;
	__u8 timeout; /* 4.096 us x 2^timeout */
	__u8 retry_count;
	__u8 rnr_retry;
	__u8 min_rnr_timer;
	__u8 max_rd_atomic;
	__u8 static_rate;
	__u16 udp_sport;
	__u16 pkey_index;
	__u32 flow_label;
	__u32 dest_qpn;
	__u32 dlid;
	__u32 rq_psn;
	__u32 sq_psn;
	__u32 qkey;
	__u32 pdn;
	__u8 sgid[16];
	__u8 dgid[16];
	__u8 dmac[8];
};

CW_ASSERT_SIZE(cw_qp_key, 16);
CW_ASSERT_SIZE(cw_qp_event, 240);

#endif
