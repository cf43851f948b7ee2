/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Every record of collwire, declared once: the BPF programs reserve these in the ring buffer, the
 * recorder appends them to the capture as they are, the correlator reads them back.
 * docs/capture-format.md is the prose.
 *
 * Rules: little endian, fixed width, no implicit padding, every size a multiple of 8, strings
 * zero-terminated and zero-filled. A record may grow at its end in a later minor version: readers
 * take the fields that length_bytes covers and zero the rest.
 */
#ifndef COLLWIRE_RECORDS_H
#define COLLWIRE_RECORDS_H

#ifndef __bpf__
#include <linux/types.h>
#endif

/* Of the functions that programs and C++ share: left to clang, BPF has calls with at most five
 * arguments. */
#define CW_INLINE static inline __attribute__((always_inline))

#define CW_SCHEMA_MAJOR 1
#define CW_SCHEMA_MINOR 5

#define CW_NAME_BYTES	 64 /* IB_DEVICE_NAME_MAX, RDMA counter names */
#define CW_IFNAME_BYTES	 16
#define CW_COMM_BYTES	 16
#define CW_CPU_USERSPACE 0xffff /* header.cpu of records made by the recorder */
#define CW_QPN_MASK	 0xffffff

/* What a record is. Numbers are never re-used. */
enum cw_kind {
	/* who and what: written by the recorder */
	CW_KIND_NODE = 1,
	CW_KIND_DEVICE = 2,
	CW_KIND_PORT = 3, /* again whenever it changes */
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
	CW_KIND_VERBS_QP = 35, /* from the ring buffer: ties posts to a device and a QP */
	CW_KIND_COUNTER_DEF = 40,
	CW_KIND_COUNTER_SAMPLES = 41,
	CW_KIND_LOSS = 48,
	CW_KIND_SAMPLE_GAP = 49,
	/* NCCL: nccl_records.h, nccl_error_records.h */
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
	/* From here on for the recorder alone: not written. */
	CW_KIND_RECORDER = 0xf000,
	CW_KIND_FILE_MAPPED = 0xf001,
};

struct cw_header {
	__u32 length_bytes; /* of the whole record, this header included */
	__u16 kind;	    /* enum cw_kind */
	__u16 cpu;	    /* that made the record, or CW_CPU_USERSPACE */
	__u64 time_ns;	    /* CLOCK_MONOTONIC of the node */
};

/* A queue pair of a node for its whole life. QP numbers repeat over devices and over time. */
struct cw_qp_key {
	__u32 dev_index; /* ib_device.index */
	__u32 qpn;
	__u64 generation_ns; /* monotonic time of its creation, or, if it was there before us, of
				our first sight of it */
};

#include "collwire/node_records.h"

/* ---- queue pairs
 * ----------------------------------------------------------------------------------------------------
 */

enum cw_qp_flags {
	CW_QP_KERNEL = 1 << 0,	    /* owned by the kernel, not by a process */
	CW_QP_PREEXISTING = 1 << 1, /* was there before the probes */
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

/* ---- bytes
 * ----------------------------------------------------------------------------------------------------------
 */

/* Frames of a software provider, by what they are for the QP that sends (tx) or gets (rx) them. */
enum cw_wire_class {
	CW_WIRE_REQUEST = 0,	/* SEND, WRITE, READ request, ATOMIC request; UD SEND */
	CW_WIRE_RESPONSE = 1,	/* READ response, ATOMIC acknowledge */
	CW_WIRE_ACK = 2,	/* ACK, NAK, RNR NAK, congestion notification */
	CW_WIRE_RETRANSMIT = 3, /* tx: a request or response whose PSN went out before; rx: a
				   duplicate or out-of-order frame */
	CW_WIRE_CLASSES = 4,
};

struct cw_wire_direction {
	__u64 frames[CW_WIRE_CLASSES];
	__u64 wire_bytes[CW_WIRE_CLASSES];    /* Ethernet header to ICRC */
	__u64 payload_bytes[CW_WIRE_CLASSES]; /* atomics: 8 in the response, 0 in the request */
	__u64 first_ns; /* the first counted frame: its time, PSN and opcode */
	__u64 last_ns;
	__u32 first_psn;
	__u8 first_opcode;
	__u8 reserved[3];
};

struct cw_wire_counters {
	struct cw_wire_direction tx;
	struct cw_wire_direction rx;
	/*
	 * Refused by the driver, and not in tx. Frames dropped before the driver are seen only
	 * where they are for the same node: those are in here, too.
	 */
	__u64 tx_failed_frames;
};

struct cw_qp_wire {
	struct cw_header header;
	struct cw_qp_key key;
	struct cw_wire_counters counters; /* cumulative over the life of the QP */
};

/* One destination of a UD queue pair. */
struct cw_ud_peer {
	struct cw_header header;
	struct cw_qp_key key;
	__u8 dgid[16]; /* IPv4 as ::ffff:a.b.c.d */
	__u32 dest_qpn;
	__u32 reserved;
	__u64 tx_frames;
	__u64 tx_wire_bytes;
	__u64 tx_payload_bytes;
};

/* Work requests by opcode, as far as the wire tells them apart. */
enum cw_post_class {
	CW_POST_SEND = 0,
	CW_POST_SEND_IMM = 1,
	CW_POST_SEND_INV = 2,
	CW_POST_WRITE = 3,
	CW_POST_WRITE_IMM = 4,
	CW_POST_READ = 5,
	CW_POST_ATOMIC = 6,
	CW_POST_ATOMIC_WRITE = 7,
	CW_POST_FLUSH = 8,
	CW_POST_LOCAL = 9,  /* LOCAL_INV, BIND_MW: nothing on the wire */
	CW_POST_OTHER = 10, /* TSO, DRIVER1, unknown */
	CW_POST_CLASSES = 11,
};

#define CW_MTU_CLASSES 5 /* path MTU 256, 512, 1024, 2048, 4096 */

struct cw_post_class_counters {
	__u64 wrs;
	__u64 zero_length_wrs;	       /* are in wrs, too */
	__u64 bytes;		       /* sum of the SGE lengths, or inline data */
	__u64 pad_bytes;	       /* to the multiple of 4 of each message */
	__u64 packets[CW_MTU_CLASSES]; /* max(1, ceil(length / MTU)) summed: the path MTU is known
					  only later */
};

struct cw_post_counters {
	__u64 first_ns;
	__u64 last_ns; /* when the recorder last saw more than before: at most one interval late */
	__u64 posts;   /* calls (post_send) or commits (wr_complete) */
	__u64 truncated_posts; /* chains or SGE lists longer than the walk: their rest is not
				  counted */
	__u64 fault_posts;     /* a work request could not be read */
	__u64 aborted_wrs;     /* ibv_wr_abort */
	struct cw_post_class_counters classes[CW_POST_CLASSES];
	__u64 multi_packet_reads[CW_MTU_CLASSES]; /* READs longer than one path MTU */
};

/* A queue pair as user space sees it. The epoch counts destroyed QPs with this number in this
 * process. */
struct cw_verbs_key {
	__u64 context; /* address of struct ibv_context */
	__u32 tgid;
	__u32 qpn;
	__u32 epoch;
	__u32 reserved;
};

struct cw_qp_post {
	struct cw_header header;
	struct cw_verbs_key key;
	struct cw_post_counters counters; /* cumulative */
};

/* First post seen on a QP. Its time lies in the life of the QP (device, qpn) that it belongs to. */
struct cw_verbs_qp {
	struct cw_header header;
	struct cw_verbs_key key;
	__u64 qp_address;
	__u64 start_boottime_ns; /* of the thread group's leader */
	__u32 qp_type;		 /* enum ibv_qp_type */
	__u32 handle;
	char device[CW_NAME_BYTES];
};

/* ---- ports
 * ----------------------------------------------------------------------------------------------------------
 */

struct cw_async_event {
	struct cw_header header;
	__u32 dev_index;
	__u32 event; /* enum ib_event_type */
	__u32 port;  /* 0: not a port event */
	__u32 qpn;   /* 0: not a QP event */
	char device[CW_NAME_BYTES];
};

struct cw_carrier {
	struct cw_header header;
	__u32 ifindex;
	__u32 up;
	__u64 netns_cookie; /* 0: not known */
	char netdev[CW_IFNAME_BYTES];
};

/* mlx5_core's port module event: cable plugged, unplugged, in error. */
struct cw_module_event {
	struct cw_header header;
	__u32 module;
	__u32 status; /* 1 plugged, 2 unplugged, 3 error, 4 disabled */
	__u32 error_type;
	__u32 reserved;
	char pci_address[CW_NAME_BYTES];
};

struct cw_device_gone {
	struct cw_header header;
	__u32 dev_index;
	__u32 reserved;
	char device[CW_NAME_BYTES];
};

enum cw_counter_unit {
	CW_UNIT_UNKNOWN = 0,
	CW_UNIT_LINK_BYTES = 1, /* Ethernet header to the end of the payload or ICRC, no FCS */
	CW_UNIT_OCTETS_4 = 2,	/* InfiniBand port data: 4 octets a count, LRH to before VCRC */
	CW_UNIT_BYTES = 3,	/* bytes of another or undocumented extent */
	CW_UNIT_PACKETS = 4,
	CW_UNIT_EVENTS = 5,
	CW_UNIT_TICKS = 6,
};

enum cw_counter_source {
	CW_COUNTER_NETDEV = 1, /* /sys/class/net/IF/statistics, carrier_* */
	CW_COUNTER_PORT = 2,   /* .../ports/N/counters */
	CW_COUNTER_HW = 3,     /* .../ports/N/hw_counters */
	CW_COUNTER_ETHTOOL = 4,
};

struct cw_counter_def {
	struct cw_header header;
	__u32 id; /* unique in the capture */
	__u32 dev_index;
	__u32 port;
	__u16 unit;   /* enum cw_counter_unit */
	__u16 source; /* enum cw_counter_source */
	char name[CW_NAME_BYTES];
};

struct cw_counter_sample {
	__u32 id;
	__u32 reserved;
	__u64 value;
};

/* header, then n samples; read between read_begin_ns and header.time_ns. */
struct cw_counter_samples {
	struct cw_header header;
	__u64 read_begin_ns;
	__u32 n;
	__u32 reserved;
#ifndef __cplusplus
	struct cw_counter_sample samples[];
#endif
};

/* ---- for the recorder alone
 * ------------------------------------------------------------------------------------------- */

/* The first mapping of a file to execute code from. */
struct cw_file_mapped {
	struct cw_header header;
	__u32 tgid;
	__u32 reserved;
	__u64 inode;
};

/* ---- loss
 * -----------------------------------------------------------------------------------------------------------
 */

enum cw_loss_class {
	CW_LOSS_QP_EVENT = 0,	    /* ring buffer full: a QP event is gone */
	CW_LOSS_PORT_EVENT = 1,	    /* ring buffer full: a port, device or carrier event is gone */
	CW_LOSS_VERBS_QP = 2,	    /* ring buffer full: posts that cannot be tied to a QP */
	CW_LOSS_QP_TABLE = 3,	    /* table of live QPs full: frames or states not counted */
	CW_LOSS_WIRE_TABLE = 4,	    /* wire counters full: frames not counted */
	CW_LOSS_WIRE_FRAME = 5,	    /* a frame whose headers or QP could not be read */
	CW_LOSS_POST_TABLE = 6,	    /* post counters full: posts not counted */
	CW_LOSS_POST_TRUNCATED = 7, /* posts with more work requests than are walked */
	CW_LOSS_POST_FAULT = 8,	    /* posts with work requests in memory that was not there */
	CW_LOSS_CALL_TABLE = 9,	    /* too many calls in flight: one was not followed */
	CW_LOSS_PROBE_MISSED = 10, /* the kernel skipped a probe (recursion, kretprobe instances) */
	CW_LOSS_RECORD_WRITE = 11, /* records that could not be written (disk full) */
	CW_LOSS_UD_PEER_TABLE = 12, /* destinations of UD QPs: in the QP's sum, not under a peer */
	CW_LOSS_NCCL_COMM = 13,	    /* ring buffer or table full: a communicator or its end */
	CW_LOSS_NCCL_CALL = 14,	    /* ring buffer full, or not read: calls that are not here */
	CW_LOSS_NCCL_LAUNCH = 15, /* ring buffer full, or two at once: launches that are not here */
	CW_LOSS_NCCL_SHAPE = 16,  /* ring buffer or store full: what a launch does is not told */
	CW_LOSS_NCCL_CONNECTION = 17,	 /* ring buffer full: connections that are not here */
	CW_LOSS_NCCL_OPS_TRUNCATED = 18, /* launches with more operations than are walked */
	CW_LOSS_NCCL_FAULT = 19,	 /* launches whose memory could not be read */
	CW_LOSS_NCCL_PROGRESS = 20,	 /* begins and ends of operations that are not here */
	CW_LOSS_NCCL_SOCKET = 21, /* ring buffer full, or not read: sockets that are not here */
	CW_LOSS_RING_UNREAD = 22, /* at the end: in a ring buffer, behind what was never finished */
	CW_LOSS_NCCL_WARNING = 23, /* ring buffer full, or too many: warnings that are not here */
	CW_LOSS_CLASSES = 24,
};

struct cw_loss {
	struct cw_header header; /* header.cpu: where it was lost */
	__u32 loss_class;	 /* enum cw_loss_class */
	__u32 reserved;
	__u64 records; /* cumulative */
};

/* Not all counters were read for more than one and a half intervals, up to header.time_ns. */
struct cw_sample_gap {
	struct cw_header header;
	__u64 begin_ns;
};

#include "collwire/nccl_error_records.h"
#include "collwire/nccl_records.h"

#ifdef __cplusplus
#define CW_ASSERT_SIZE(type, bytes) static_assert(sizeof(struct type) == (bytes), #type)
#else
#define CW_ASSERT_SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type)
#endif

CW_ASSERT_SIZE(cw_header, 16);
CW_ASSERT_SIZE(cw_qp_key, 16);
CW_ASSERT_SIZE(cw_node, 320);
CW_ASSERT_SIZE(cw_device, 216);
CW_ASSERT_SIZE(cw_port, 104);
CW_ASSERT_SIZE(cw_gid, 64);
CW_ASSERT_SIZE(cw_pci_function, 304);
CW_ASSERT_SIZE(cw_clock, 40);
CW_ASSERT_SIZE(cw_process, 2272);
CW_ASSERT_SIZE(cw_probe, 456);
CW_ASSERT_SIZE(cw_source, 312);
CW_ASSERT_SIZE(cw_end, 24);
CW_ASSERT_SIZE(cw_qp_event, 240);
CW_ASSERT_SIZE(cw_wire_direction, 120);
CW_ASSERT_SIZE(cw_qp_wire, 280);
CW_ASSERT_SIZE(cw_ud_peer, 80);
CW_ASSERT_SIZE(cw_post_counters, 880);
CW_ASSERT_SIZE(cw_verbs_key, 24);
CW_ASSERT_SIZE(cw_qp_post, 920);
CW_ASSERT_SIZE(cw_verbs_qp, 128);
CW_ASSERT_SIZE(cw_async_event, 96);
CW_ASSERT_SIZE(cw_carrier, 48);
CW_ASSERT_SIZE(cw_module_event, 96);
CW_ASSERT_SIZE(cw_device_gone, 88);
CW_ASSERT_SIZE(cw_counter_def, 96);
CW_ASSERT_SIZE(cw_counter_sample, 16);
CW_ASSERT_SIZE(cw_counter_samples, 32);
CW_ASSERT_SIZE(cw_loss, 32);
CW_ASSERT_SIZE(cw_sample_gap, 24);
CW_ASSERT_SIZE(cw_nccl_image, 856);
CW_ASSERT_SIZE(cw_nccl_process, 48);
CW_ASSERT_SIZE(cw_nccl_result, 48);
CW_ASSERT_SIZE(cw_nccl_last_error, 544);
CW_ASSERT_SIZE(cw_nccl_warning, 864);
CW_ASSERT_SIZE(cw_nccl_network, 320);
CW_ASSERT_SIZE(cw_nccl_comm, 200);
CW_ASSERT_SIZE(cw_nccl_comm_end, 32);
CW_ASSERT_SIZE(cw_nccl_channel, 64);
CW_ASSERT_SIZE(cw_nccl_param, 80);
CW_ASSERT_SIZE(cw_nccl_call, 64);
CW_ASSERT_SIZE(cw_nccl_return, 48);
CW_ASSERT_SIZE(cw_nccl_progress, 56);
CW_ASSERT_SIZE(cw_nccl_steps, 56);
CW_ASSERT_SIZE(cw_nccl_launch, 96);
CW_ASSERT_SIZE(cw_nccl_launch_tasks, 80);
CW_ASSERT_SIZE(cw_nccl_shape_task, 72);
CW_ASSERT_SIZE(cw_nccl_op, 88);
CW_ASSERT_SIZE(cw_nccl_shape_ops, 144);
CW_ASSERT_SIZE(cw_nccl_connection, 280);
CW_ASSERT_SIZE(cw_tcp_socket, 144);
CW_ASSERT_SIZE(cw_nccl_socket, 64);

#endif
