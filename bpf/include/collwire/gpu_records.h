/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The records of GPU kernels. The guest library libcollwire_cupti.so writes the items in the traced
 * process, a BPF program copies each into a record (cupti/README.md describes the hand-over).
 */
#ifndef COLLWIRE_GPU_RECORDS_H
#define COLLWIRE_GPU_RECORDS_H

#include "collwire/record.h"

#define CW_GPU_LIBRARY "libcollwire_cupti.so"

#define CW_GPU_BATCH_MAGIC   0x42475743 /* "CWGB" */
#define CW_GPU_BATCH_VERSION 1
#define CW_GPU_BATCH_ITEMS   64		/* at most, in one hand-over */
#define CW_GPU_BUFFER_BYTES  (32 << 20) /* of host memory that a traced process takes, at most */

/* What a hand-over holds, and so the kind of its records. */
enum cw_gpu_item {
	CW_GPU_ITEM_KERNEL = 1,
	CW_GPU_ITEM_NAME = 2,
	CW_GPU_ITEM_WINDOW = 3,
	CW_GPU_ITEM_STATE = 4,
	CW_GPU_ITEM_CHANNEL = 5,
	CW_GPU_ITEM_PROFILER = 6,
	CW_GPU_ITEMS = 7,
};

/* The argument of the probe site gpu_batch. Items of a newer library may be longer. */
struct cw_gpu_batch {
	__u32 magic;
	__u16 version;
	__u16 item; /* enum cw_gpu_item */
	__u32 count;
	__u32 item_bytes;
	__u64 items; /* address of the first */
};

enum cw_gpu_kernel_flags {
	CW_GPU_KERNEL_RUNNING = 1 << 0,	 /* it still ran when the trace ended: end_ns is 0 */
	CW_GPU_KERNEL_ODD_TIME = 1 << 1, /* it ends before it starts: CUPTI's times, unchanged */
	CW_GPU_KERNEL_QUEUED = 1 << 2,	 /* it had not begun when the trace ended: both are 0 */
};

/* A kernel of NCCL that ran. Times: CLOCK_MONOTONIC of the node, converted from CUPTI's clock. */
struct cw_gpu_kernel_item {
	__u64 start_ns;
	__u64 end_ns;
	__u64 graph_node;  /* CUPTI's id of the node in its graph; 0: no graph */
	__u32 correlation; /* CUPTI's count of API calls: of a graph, that of its launch */
	__u32 graph;	   /* CUPTI's id of the graph; 0: no graph */
	__u32 context;
	__u32 stream;
	__u32 blocks;  /* of the grid: NCCL's channels with work */
	__u16 threads; /* of a block */
	__u16 cluster; /* blocks of a cluster; 0: not known */
	__u16 device;  /* CUDA's index in the process */
	__u16 name;    /* cw_gpu_name_item.name of the same process */
	__u16 flags;   /* enum cw_gpu_kernel_flags */
	__u16 reserved;
};

#define CW_GPU_NAME_BYTES 120

/* The name of a kernel, before the first kernel that has it in a trace, and for each new recorder.
 */
struct cw_gpu_name_item {
	__u16 name;
	__u16 is_truncated;
	__u32 reserved;
	char text[CW_GPU_NAME_BYTES]; /* as CUPTI has it: mangled */
};

/*
 * What one device did for one process in one window. Intervals of the same class that overlap are
 * counted once.
 */
struct cw_gpu_window_item {
	__u64 start_ns;
	__u64 busy_ns;	  /* other kernels than NCCL's ran */
	__u64 nccl_ns;	  /* kernels of NCCL ran */
	__u64 overlap_ns; /* both */
	__u32 kernels;	  /* others that started here */
	__u32 nccl_kernels;
	__u32 window_ns;
	__u16 device;
	__u16 reserved;
};

enum cw_gpu_state {
	CW_GPU_OFF = 0,
	CW_GPU_ARMED = 1,
	CW_GPU_DISARMED = 2,
	CW_GPU_YIELDED = 3, /* another tool uses CUPTI in this process */
	CW_GPU_REFUSED = 4, /* this process or its CUPTI gives no safe way */
	CW_GPU_FAILED = 5,  /* an error of CUPTI: off for good */
	CW_GPU_EXITING = 6,
	CW_GPU_NO_CUDA = 7, /* no context yet */
	CW_GPU_RUNNING = 8, /* still armed: counts again */
};

enum cw_gpu_reason {
	CW_GPU_REASON_NONE = 0,
	CW_GPU_REASON_NO_CUPTI = 1,	  /* no libcupti to load */
	CW_GPU_REASON_OLD_CUPTI = 2,	  /* a version whose records are not known */
	CW_GPU_REASON_SUBSCRIBED = 3,	  /* another subscriber has the slot */
	CW_GPU_REASON_OTHER_ACTIVITY = 4, /* another tool asked for activity records */
	CW_GPU_REASON_UNSEEN_CALLER = 5,  /* CUPTI was loaded by a way that cannot be watched */
	CW_GPU_REASON_NO_MEMORY = 6,
	CW_GPU_REASON_CUPTI = 7,   /* `result` is CUPTI's */
	CW_GPU_REASON_THREADS = 8, /* NCCL before 2.28 launches from several threads */
	CW_GPU_REASON_LATE = 9,	   /* NCCL 2.31 and later, with communicators that ran untraced */
};

/*
 * A state of the guest, at each change, with each flush, and for each new recorder. Counts grow
 * from the process's start.
 */
struct cw_gpu_state_item {
	__u32 state;  /* enum cw_gpu_state */
	__u32 reason; /* enum cw_gpu_reason */
	__s32 result; /* CUptiResult */
	__u32 cupti_version;
	/* The call that armed or disarmed: launches that overlap it may be missing. */
	__u64 begin_ns;
	__u64 end_ns;
	__u64 kernels;	       /* records of NCCL kernels that were handed over */
	__u64 unknown_names;   /* of those, with a name that is not known */
	__u64 unnamed;	       /* of those, beyond the table of names: name is CW_GPU_NO_NAME */
	__u64 other_kernels;   /* summed in windows */
	__u64 before_armed;    /* records without times: launched before the trace */
	__u64 dropped;	       /* CUPTI's own count of lost records */
	__u64 buffers_lacking; /* times that CUPTI asked and got no buffer */
	__u64 memory_bytes;    /* of the host, for buffers */
	__u64 clock_error_ns;  /* how far times may be off: half of the slowest reading of both */
	__u64 yields;
	char owner[64]; /* who has CUPTI's slot, or the file that asked */
	/* Kernels in no window: of devices without windows, or that ended too late for theirs. */
	__u64 not_summed;
};

#define CW_GPU_NO_NAME 0xffff

/* What gave the times of a kernel. */
enum cw_gpu_source {
	CW_GPU_SOURCE_CUPTI = 0,    /* cw_gpu_kernel */
	CW_GPU_SOURCE_PROFILER = 1, /* cw_gpu_channel: NCCL's profiler */
};

enum cw_gpu_channel_flags {
	CW_GPU_CHANNEL_RUNNING = 1 << 0, /* it had not stopped when the trace ended: end_ns is 0 */
	/* It stops before it starts: the GPU's times, unchanged. */
	CW_GPU_CHANNEL_ODD_TIME = 1 << 1,
	/* NCCL gives no times of the GPU (2.26): when its proxy thread saw the start and the end.
	 */
	CW_GPU_CHANNEL_SEEN = 1 << 2,
	/* NCCL named no operation: all from plan to n_channels is 0. */
	CW_GPU_CHANNEL_NO_TASK = 1 << 3,
	/*
	 * NCCL counts the marks of this communicator's kernels wrongly from a send to itself on
	 * (and from some replays on): the times may be those of an earlier operation.
	 */
	CW_GPU_CHANNEL_OUT_OF_STEP = 1 << 4,
};

/*
 * One operation's work on one channel of a kernel, from NCCL's profiler. Times: CLOCK_MONOTONIC of
 * the node, converted from the GPU's global timer.
 */
struct cw_gpu_channel_item {
	__u64 start_ns;
	__u64 end_ns;
	__u64 comm_hash;
	__u64 plan;	 /* number of the kernel plan's execution in the process: one kernel */
	__u64 posted_ns; /* NCCL gave the plan to its proxy thread: just after the launch, before a
			    replay */
	__u64 launch_ns; /* NCCL was about to launch the kernel; 0: not known */
	__u64 sequence; /* NCCL's count of this function on the communicator; of a send or receive 0
			 */
	__u64 count;	/* of elements */
	__u32 rank;
	__u16 channel;
	__u16 flags;	  /* enum cw_gpu_channel_flags */
	__u8 func;	  /* enum cw_nccl_func */
	__u8 n_channels;  /* of the operation; 0: not known */
	__u8 api_version; /* of NCCL's profiler interface */
	__u8 source;	  /* enum cw_gpu_source */
	__u32 peer;	  /* of a send or receive, else 0xffffffff */
};

/*
 * State of the guest as NCCL's profiler plugin, at each change and once a second. Counts
 * grow from the start of the process.
 */
struct cw_gpu_profiler_item {
	__u32 state;	   /* enum cw_gpu_state: armed, running, disarmed, refused, exiting */
	__u32 reason;	   /* enum cw_gpu_reason */
	__u32 cupti_state; /* enum cw_gpu_state: why CUPTI is not armed; off: the guest was not
			      injected */
	__u32 api_version; /* of NCCL's profiler interface; 0: no communicator yet */
	/* Request and change of NCCL's mask: operations between the two may be missing. */
	__u64 begin_ns;
	__u64 end_ns;
	__u64 channels; /* records that were handed over */
	__u64 orphans;	/* of those, without an operation */
	__u64 dropped;	/* starts that found no room */
	__u64 tasks;	/* operations that NCCL started events for */
	__u64 calls;	/* of the plugin's functions by NCCL, all together */
	__u64 memory_bytes;
	__u64 clock_error_ns; /* how far times may be off, at most; 0: not known */
	__u64 clock_breaks;   /* times that the bounds of a GPU's clock contradicted each other */
	__u32 communicators;  /* that exist */
	__u32 out_of_step;    /* of those, with records that are out of step */
};

struct cw_gpu_kernel {
	struct cw_header header;
	__u32 tgid;
	__u32 reserved;
	struct cw_gpu_kernel_item kernel;
};

struct cw_gpu_name {
	struct cw_header header;
	__u32 tgid;
	__u32 reserved;
	struct cw_gpu_name_item name;
};

struct cw_gpu_window {
	struct cw_header header;
	__u32 tgid;
	__u32 reserved;
	struct cw_gpu_window_item window;
};

struct cw_gpu_trace {
	struct cw_header header;
	__u32 tgid;
	__u32 reserved;
	struct cw_gpu_state_item state;
};

struct cw_gpu_channel {
	struct cw_header header;
	__u32 tgid;
	__u32 reserved;
	struct cw_gpu_channel_item channel;
};

struct cw_gpu_profiler {
	struct cw_header header;
	__u32 tgid;
	__u32 reserved;
	struct cw_gpu_profiler_item profiler;
};

CW_ASSERT_SIZE(cw_gpu_batch, 24);
CW_ASSERT_SIZE(cw_gpu_kernel_item, 56);
CW_ASSERT_SIZE(cw_gpu_name_item, 128);
CW_ASSERT_SIZE(cw_gpu_window_item, 48);
CW_ASSERT_SIZE(cw_gpu_state_item, 184);
CW_ASSERT_SIZE(cw_gpu_kernel, 80);
CW_ASSERT_SIZE(cw_gpu_name, 152);
CW_ASSERT_SIZE(cw_gpu_window, 72);
CW_ASSERT_SIZE(cw_gpu_trace, 208);
CW_ASSERT_SIZE(cw_gpu_channel_item, 80);
CW_ASSERT_SIZE(cw_gpu_profiler_item, 104);
CW_ASSERT_SIZE(cw_gpu_channel, 104);
CW_ASSERT_SIZE(cw_gpu_profiler, 128);

#endif
