/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The parts of mlx5's command and event formats that are read: big-endian, fixed by the hardware
 * (Programmer's Reference Manual, include/linux/mlx5/mlx5_ifc.h). Pure: tested in user space.
 */
#ifndef COLLWIRE_MLX5_PRM_H
#define COLLWIRE_MLX5_PRM_H

#include "collwire/qp_records.h"

enum {
	CW_MLX5_CREATE_QP = 0x500,
	CW_MLX5_DESTROY_QP = 0x501,
	CW_MLX5_RST2INIT_QP = 0x502,
	CW_MLX5_INIT2RTR_QP = 0x503,
	CW_MLX5_RTR2RTS_QP = 0x504,
	CW_MLX5_RTS2RTS_QP = 0x505,
	CW_MLX5_SQERR2RTS_QP = 0x506,
	CW_MLX5_2ERR_QP = 0x507,
	CW_MLX5_2RST_QP = 0x50a,
	CW_MLX5_INIT2INIT_QP = 0x50e,
};

/* Command in: opcode 16, uid 16, reserved 16, op_mod 16, reserved 8, qpn 24, ...; the QP context
 * (qpc) at byte 24. */
#define CW_MLX5_QPC_AT 24
/* As far as q_key goes. */
#define CW_MLX5_QPC_BYTES     172
#define CW_MLX5_COMMAND_BYTES (CW_MLX5_QPC_AT + CW_MLX5_QPC_BYTES)
/* Command out: status 8, reserved 24, syndrome 32, reserved 8, qpn 24. */
#define CW_MLX5_OUT_BYTES 12

static inline __u32 cw_be16(const __u8 *p)
{
	return (__u32)p[0] << 8 | p[1];
}

static inline __u32 cw_be24(const __u8 *p)
{
	return (__u32)p[0] << 16 | (__u32)p[1] << 8 | p[2];
}

static inline __u32 cw_be32(const __u8 *p)
{
	return (__u32)p[0] << 24 | cw_be24(p + 1);
}

static inline int cw_mlx5_is_qp_command(__u32 opcode)
{
	return (opcode >= CW_MLX5_CREATE_QP && opcode <= CW_MLX5_2ERR_QP) ||
	       opcode == CW_MLX5_2RST_QP || opcode == CW_MLX5_INIT2INIT_QP;
}

/* enum ib_qp_state after the command; 0xff: the command does not set it. */
static inline __u8 cw_mlx5_state_after(__u32 opcode)
{
	switch (opcode) {
	case CW_MLX5_CREATE_QP:
	case CW_MLX5_2RST_QP:
		return 0;
	case CW_MLX5_RST2INIT_QP:
	case CW_MLX5_INIT2INIT_QP:
		return 1;
	case CW_MLX5_INIT2RTR_QP:
		return 2;
	case CW_MLX5_RTR2RTS_QP:
	case CW_MLX5_RTS2RTS_QP:
	case CW_MLX5_SQERR2RTS_QP:
		return 3;
	case CW_MLX5_2ERR_QP:
		return 6;
	default:
		return 0xff;
	}
}

/* enum ib_qp_type of the service type in a QP context. */
static inline __u8 cw_mlx5_qp_type(const __u8 *qpc)
{
	switch (qpc[1]) {
	case 0:
		return 2;
	case 1:
		return 3;
	case 2:
		return 4;
	case 3:
		return 9;
	default:
		return 0xff; /* DCI, DCT, raw, ... */
	}
}

/* What the QP context of INIT2RTR or RTR2RTS sets. `command` has CW_MLX5_COMMAND_BYTES bytes. */
static inline void cw_mlx5_fill_event(struct cw_qp_event *e, __u32 opcode, const __u8 *command)
{
	const __u8 *qpc = command + CW_MLX5_QPC_AT;
	const __u8 *path = qpc + 24; /* primary_address_path */
	__u32 label;

	if (opcode == CW_MLX5_RST2INIT_QP) {
		e->pdn = cw_be24(qpc + 5);
		e->port = path[37];
		e->qkey = cw_be32(qpc + 168);
		e->pkey_index = (__u16)cw_be16(path + 2);
	}
	if (opcode == CW_MLX5_RTR2RTS_QP) {
		e->sq_psn = cw_be24(qpc + 121);
		e->retry_count = (__u8)(cw_be32(qpc + 112) >> 16 & 7);
		e->rnr_retry = (__u8)(cw_be32(qpc + 112) >> 13 & 7);
		e->timeout = path[8] >> 3;
		e->flags |= CW_QP_PSN_SQ;
	}
	if (opcode != CW_MLX5_INIT2RTR_QP)
		return;
	e->path_mtu = qpc[8] >> 5;
	e->dest_qpn = cw_be24(qpc + 21);
	e->rq_psn = cw_be24(qpc + 149);
	e->min_rnr_timer = qpc[148] & 0x1f;
	e->flags |= CW_QP_PATH_MTU | CW_QP_DEST | CW_QP_PSN_RQ | CW_QP_ADDRESS;
	e->dlid = cw_be16(path + 6);
	e->sgid_index = path[9];
	e->static_rate = path[10] & 0xf;
	e->hop_limit = path[11];
	label = cw_be32(path + 12);
	e->traffic_class = (__u8)(label >> 20);
	e->flow_label = label & 0xfffff;
	for (int i = 0; i < 16; i++) {
		e->dgid[i] = path[16 + i];
		if (e->dgid[i])
			e->flags |= CW_QP_GRH;
	}
	e->udp_sport = (__u16)cw_be16(path + 34);
	if (e->udp_sport)
		e->flags |= CW_QP_UDP_SPORT;
	e->service_level = path[36] & 0xf;
	for (int i = 0; i < 6; i++)
		e->dmac[i] = path[38 + i];
}

#endif
