/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The records of NVLink: what NVML reads of each GPU and link, and the NVIDIA driver's errors (Xid)
 * in the kernel log.
 */
#ifndef COLLWIRE_NVLINK_RECORDS_H
#define COLLWIRE_NVLINK_RECORDS_H

#include "collwire/record.h"

#define CW_NVLINK_ALL_LINKS    0xffff	  /* cw_nvlink_value.link: of the whole GPU */
#define CW_NVLINK_ALL_GPUS     0xffffffff /* cw_nvlink_gap.gpu */
#define CW_NVLINK_UUID_BYTES   96	  /* NVML_DEVICE_UUID_V2_BUFFER_SIZE */
#define CW_NVLINK_NAME_BYTES   96	  /* NVML_DEVICE_NAME_V2_BUFFER_SIZE */
#define CW_NVLINK_DRIVER_BYTES 80	  /* NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE */
#define CW_XID_REGISTERS       8
#define CW_XID_UNIT_BYTES      32
#define CW_XID_TEXT_BYTES      192

/* A GPU that NVML lists, at each start of NVML and in each segment. */
struct cw_nvlink_gpu {
	struct cw_header header;
	__u32 gpu;    /* NVML's index */
	__u32 epoch;  /* counts the starts of NVML in this recording, from 1 */
	__u64 bus_id; /* as NCCL's: domain << 20 | bus << 12 | device << 4 */
	__u32 links;  /* 0: none, or not known */
	__s32 result; /* nvmlReturn_t of the question for the number of links */
	char uuid[CW_NVLINK_UUID_BYTES];
	char name[CW_NVLINK_NAME_BYTES];
	char driver[CW_NVLINK_DRIVER_BYTES];
	/*
	 * By NVML's index, as bits: GPUs that this one reaches over NVLink, and those that it does
	 * not, by nvmlDeviceGetP2PStatus. In neither: not known, or from 64 on.
	 */
	__u64 nvlink_peers;
	__u64 other_peers;
};

/* The answer to one NVML field. */
struct cw_nvlink_value {
	__u16 field;  /* NVML_FI_DEV_* */
	__u16 link;   /* or CW_NVLINK_ALL_LINKS */
	__u16 type;   /* nvmlValueType_t; valid if result is 0 */
	__u16 result; /* nvmlReturn_t; not 0: not measured, and why */
	__u64 value;  /* the union's 8 bytes, those beyond the type's size 0 */
};

/*
 * header, then n values; read between read_begin_ns and header.time_ns. A field that is left out
 * has the same answer as in the record before.
 */
struct cw_nvlink_sample {
	struct cw_header header;
	__u64 read_begin_ns;
	__u32 gpu;
	__u32 epoch;
	__u32 n;
	__u32 reserved;
#ifndef __cplusplus
	struct cw_nvlink_value values[];
#endif
};

enum cw_nvlink_gap_reason {
	CW_NVLINK_NO_ANSWER = 1,   /* NVML did not return in time; the reading is given up */
	CW_NVLINK_FAILED = 2,	   /* NVML cannot be used: result */
	CW_NVLINK_EXITED = 3,	   /* the process that runs NVML has exited */
	CW_NVLINK_LOG_OVERRUN = 4, /* the kernel log dropped lines before they were read */
};

/* NVLink was not measured from begin_ns on, until the next record of that GPU or log. */
struct cw_nvlink_gap {
	struct cw_header header;
	__u64 begin_ns;
	__u32 gpu;    /* or CW_NVLINK_ALL_GPUS */
	__u32 reason; /* enum cw_nvlink_gap_reason */
	__s32 result; /* nvmlReturn_t */
	__u32 reserved;
};

enum cw_xid_flags {
	CW_XID_BEFORE = 1 << 0,	  /* it was in the log before the recording */
	CW_XID_FATAL = 1 << 1,	  /* the driver's word for NVLink errors */
	CW_XID_NONFATAL = 1 << 2, /* likewise */
	CW_XID_CUT = 1 << 3,	  /* the text is longer than the field */
};

/* An error of the NVIDIA driver. header.time_ns: when it was read. */
struct cw_xid {
	struct cw_header header;
	__u64 after_ns;	 /* it is later than this; 0: not known, with CW_XID_BEFORE */
	__u64 kernel_ns; /* the kernel log's own clock, which drifts against CLOCK_MONOTONIC */
	__u64 sequence;	 /* of the kernel log */
	__u64 bus_id;	 /* as cw_nvlink_gpu's */
	__u32 xid;
	__s32 link;	 /* -1: none */
	__u32 flags;	 /* enum cw_xid_flags */
	__u32 pid;	 /* 0: none */
	__u32 caused_by; /* the Xid that the driver names as the cause; 0: none */
	__u32 n_registers;
	__u32 registers[CW_XID_REGISTERS];
	char unit[CW_XID_UNIT_BYTES]; /* "NETIR_LINK_EVT" */
	char text[CW_XID_TEXT_BYTES]; /* the line, from "Xid" on */
};

CW_ASSERT_SIZE(cw_nvlink_gpu, 328);
CW_ASSERT_SIZE(cw_nvlink_value, 16);
CW_ASSERT_SIZE(cw_nvlink_sample, 40);
CW_ASSERT_SIZE(cw_nvlink_gap, 40);
CW_ASSERT_SIZE(cw_xid, 328);

#endif
