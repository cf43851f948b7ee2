/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The version of the capture format, and the number of each kind of record. */
#ifndef COLLWIRE_RECORD_KINDS_H
#define COLLWIRE_RECORD_KINDS_H

#define CW_SCHEMA_MAJOR 1
#define CW_SCHEMA_MINOR 14

/* The kind of a record. Numbers are never reused. */
enum cw_kind {
	/* node and recording: written by the recorder */
	CW_KIND_NODE = 1,
	CW_KIND_DEVICE = 2,
	CW_KIND_PORT = 3, /* again after each change */
	CW_KIND_GID = 4,
	CW_KIND_CLOCK = 5,
	CW_KIND_PROCESS = 6,
	CW_KIND_PROBE = 7,
	CW_KIND_SOURCE = 8,
	CW_KIND_END = 9,
	CW_KIND_PCI_FUNCTION = 10,
	/* queue pairs: from the ring buffer, all of them struct cw_qp_event */
	CW_KIND_QP_CREATE = 16,
	CW_KIND_QP_STATE = 17,
	CW_KIND_QP_EXISTING = 18,
	CW_KIND_QP_DESTROY = 19,
	CW_KIND_QP_ERROR = 20,
	/* events of ports and devices: from the ring buffer */
	CW_KIND_ASYNC_EVENT = 24,
	CW_KIND_CARRIER = 25,
	CW_KIND_MODULE_EVENT = 26,
	CW_KIND_DEVICE_GONE = 27,
	/* cumulative counters: sampled by the recorder */
	CW_KIND_QP_WIRE = 32,
	CW_KIND_UD_PEER = 33,
	CW_KIND_QP_POST = 34,
	CW_KIND_VERBS_QP = 35,	      /* from the ring buffer: ties posts to a device and a QP */
	CW_KIND_POST_SLICE = 36,      /* recorder: whether posts are counted */
	CW_KIND_POST_OPERATIONS = 37, /* recorder: posts of NCCL operations in a slice */
	CW_KIND_COUNTER_DEF = 40,
	CW_KIND_COUNTER_SAMPLES = 41,
	CW_KIND_LOSS = 48,
	CW_KIND_SAMPLE_GAP = 49,
	/* NCCL */
	CW_KIND_NCCL_IMAGE = 64,
	CW_KIND_NCCL_PROCESS = 65,
	CW_KIND_NCCL_COMM = 66,
	CW_KIND_NCCL_COMM_END = 67,
	CW_KIND_NCCL_CHANNEL = 68,
	CW_KIND_NCCL_PARAM = 69,
	CW_KIND_NCCL_CALL = 70,
	CW_KIND_NCCL_LAUNCH = 71,
	CW_KIND_NCCL_LAUNCH_TASKS = 72,
	CW_KIND_NCCL_SHAPE_TASK = 73,
	CW_KIND_NCCL_SHAPE_OPS = 74,
	CW_KIND_NCCL_CONNECTION = 75,
	CW_KIND_NCCL_RETURN = 76,
	CW_KIND_NCCL_PROGRESS = 77,
	CW_KIND_NCCL_STEPS = 78, /* sampled by the recorder */
	CW_KIND_TCP_SOCKET = 80, /* sampled by the recorder */
	CW_KIND_NCCL_SOCKET = 81,
	CW_KIND_NCCL_RESULT = 82,     /* read by the recorder */
	CW_KIND_NCCL_LAST_ERROR = 83, /* read by the recorder */
	CW_KIND_NCCL_WARNING = 84,
	CW_KIND_NCCL_NETWORK = 85, /* read by the recorder */
	CW_KIND_NCCL_LOCAL = 86,   /* read by the recorder */
	CW_KIND_NCCL_NVLS = 87,	   /* read by the recorder */
	/* GPU kernels: from the guest library in CUDA processes */
	CW_KIND_GPU_KERNEL = 96,
	CW_KIND_GPU_NAME = 97,
	CW_KIND_GPU_WINDOW = 98,
	CW_KIND_GPU_TRACE = 99,
	CW_KIND_GPU_CHANNEL = 100,
	CW_KIND_GPU_PROFILER = 101,
	/* NVLink: read by the recorder through NVML and from the kernel log */
	CW_KIND_NVLINK_GPU = 112,
	CW_KIND_NVLINK_SAMPLE = 113,
	CW_KIND_NVLINK_GAP = 114,
	CW_KIND_XID = 115,
	/* From here on for the recorder alone: never in a capture. */
	CW_KIND_RECORDER = 0xf000,
	CW_KIND_FILE_MAPPED = 0xf001,
	CW_KIND_TCP_SOCKET_END = 0xf002,
	/* + CW_KIND_QP_CREATE ... CW_KIND_ASYNC_EVENT: of libibverbs, for comparison only */
	CW_KIND_COMPARED = 0xf100,
};

#endif
