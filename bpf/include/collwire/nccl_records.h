/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The records of NCCL's communicators, calls, launches and connections: a part of records.h, under
 * its rules. docs/sources/nccl.md says where each comes from.
 *
 * A communicator is named by (tgid, address of struct ncclComm) from its CW_KIND_NCCL_COMM record
 * to its CW_KIND_NCCL_COMM_END record: addresses are used again. The same holds for a connection
 * within its communicator. Times decide, not the order in the file.
 */
#ifndef COLLWIRE_NCCL_RECORDS_H
#define COLLWIRE_NCCL_RECORDS_H

/* ncclFunc_t. Since 2.18 it only ever grew: plans are checked for that. */
enum cw_nccl_func {
	CW_NCCL_BROADCAST = 0,
	CW_NCCL_REDUCE = 1,
	CW_NCCL_ALL_GATHER = 2,
	CW_NCCL_REDUCE_SCATTER = 3,
	CW_NCCL_ALL_REDUCE = 4,
	CW_NCCL_SEND_RECV = 5,
	CW_NCCL_SEND = 6,
	CW_NCCL_RECV = 7,
	CW_NCCL_ALL_TO_ALL = 8,
	CW_NCCL_SCATTER = 9,
	CW_NCCL_GATHER = 10,
	CW_NCCL_ALL_GATHER_V = 11,
	CW_NCCL_PUT_SIGNAL = 12,
	CW_NCCL_SIGNAL = 13,
	CW_NCCL_WAIT_SIGNAL = 14,
	CW_NCCL_FUNCS = 15,
	CW_NCCL_FUNC_UNKNOWN = 0xff,
};

/* ncclPattern_t: its numbers change between versions, these do not. */
enum cw_nccl_pattern {
	CW_NCCL_PATTERN_UNKNOWN = 0,
	CW_NCCL_PATTERN_RING = 1,
	CW_NCCL_PATTERN_RING_TWICE = 2,
	CW_NCCL_PATTERN_PIPELINE_FROM = 3,
	CW_NCCL_PATTERN_PIPELINE_TO = 4,
	CW_NCCL_PATTERN_TREE_UP = 5,
	CW_NCCL_PATTERN_TREE_DOWN = 6,
	CW_NCCL_PATTERN_TREE_UP_DOWN = 7,
	CW_NCCL_PATTERN_COLLNET_CHAIN = 8,
	CW_NCCL_PATTERN_COLLNET_DIRECT = 9,
	CW_NCCL_PATTERN_NVLS = 10,
	CW_NCCL_PATTERN_NVLS_TREE = 11,
	CW_NCCL_PATTERN_PAT_UP = 12,
	CW_NCCL_PATTERN_PAT_DOWN = 13,
	CW_NCCL_PATTERN_SEND = 14,
	CW_NCCL_PATTERN_RECV = 15,
	CW_NCCL_PATTERN_PROFILER = 16,
	CW_NCCL_PATTERNS = 17,
};

enum cw_nccl_algorithm {
	CW_NCCL_TREE = 0,
	CW_NCCL_RING = 1,
	CW_NCCL_COLLNET_DIRECT = 2,
	CW_NCCL_COLLNET_CHAIN = 3,
	CW_NCCL_NVLS = 4,
	CW_NCCL_NVLS_TREE = 5,
	CW_NCCL_PAT = 6,
	CW_NCCL_ALGORITHM_UNKNOWN = 0xff,
};

enum cw_nccl_protocol {
	CW_NCCL_LL = 0,
	CW_NCCL_LL128 = 1,
	CW_NCCL_SIMPLE = 2,
	CW_NCCL_PROTOCOL_UNKNOWN = 0xff,
};

/* Indices of cw_nccl_image.rungs. */
enum cw_nccl_capability {
	CW_NCCL_COMMUNICATORS = 0,
	CW_NCCL_OPERATIONS = 1,
	CW_NCCL_CONNECTIONS = 2,
	CW_NCCL_BYTES = 3,
	CW_NCCL_GRAPHS = 4,
	CW_NCCL_ERRORS = 5,
	CW_NCCL_INSPECT = 6,
	CW_NCCL_TIMES = 7,
	CW_NCCL_CAPABILITIES = 8,
};

enum cw_rung {
	CW_RUNG_PROCESS = 0,
	CW_RUNG_INFERRED = 1,
	CW_RUNG_EXACT = 2,
};

/* A file with NCCL in it that a process has mapped. */
struct cw_nccl_image {
	struct cw_header header;
	__u32 image_id; /* unique in the recording */
	__u32 version;	/* ncclGetVersion's number, 22809; 0: not known */
	__u64 inode;
	__u8 rungs[CW_NCCL_CAPABILITIES]; /* enum cw_rung by enum cw_nccl_capability */
	char build_id[48];		  /* hex */
	char path[256];			  /* as the process sees it */
	char reason[256];		  /* why it is not traced; empty: it is */
	char basis[256];		  /* what its rung of operations rests on */
};

/* That a process has mapped an image, and since when it is looked at. */
struct cw_nccl_process {
	struct cw_header header;
	__u32 tgid;
	__u32 image_id;
	__u64 start_boottime_ns;
	__u64 gone_ns;	/* since when it is known to have ended; 0: it had not */
	__u64 there_ns; /* until then it was there, of one that has ended */
};

enum cw_nccl_comm_flags {
	CW_NCCL_COMM_CREATED = 1 << 0,	  /* seen from its creation: calls count from 0 */
	CW_NCCL_COMM_OUTSIDE = 1 << 1,	  /* read from the process's memory, not met in a call */
	CW_NCCL_COMM_LAUNCHED = 1 << 2,	  /* `launched` is valid */
	CW_NCCL_COMM_SHARED = 1 << 3,	  /* shares connections and counters with its parent */
	CW_NCCL_COMM_CALLS_ONLY = 1 << 4, /* what it launches cannot be read */
};

struct cw_nccl_comm {
	struct cw_header header;
	__u32 tgid;
	__u32 tid; /* 0: read from the outside */
	__u64 comm;
	__u64 comm_hash;
	__u64 start_boottime_ns; /* of the process */
	__u64 bus_id;
	__u64 parent; /* address of its parent; 0: none or not known */
	__u64 proxy_state;
	__u64 op_count; /* starts, counted by NCCL */
	__u64 launched;
	__u32 image_id;
	__u32 flags; /* enum cw_nccl_comm_flags */
	__s32 rank;
	__s32 n_ranks;
	__s32 cuda_dev;
	__s32 node;
	__s32 n_nodes;
	__s32 local_rank;
	__s32 local_ranks;
	__s32 color; /* of the split that made it */
	char name[CW_NAME_BYTES];
	__u32 p2p_channels; /* that sends and receives go to, a power of two; 0: not known */
	__u32 reserved;
};

struct cw_nccl_comm_end {
	struct cw_header header;
	__u32 tgid;
	__u32 tid;
	__u64 comm;
};

/* One channel of a communicator: rings and trees as NCCL laid them out. */
struct cw_nccl_channel {
	struct cw_header header;
	__u32 tgid;
	__u32 channel;
	__u64 comm;
	__s32 ring_prev;
	__s32 ring_next;
	__s32 ring_index;
	__s32 tree_up;
	__s32 tree_down[3];
	__u32 n_order; /* ranks in the order of the ring, from this one on; 0: not read */
#ifndef __cplusplus
	__s32 order[]; /* filled with one more to a multiple of 8 bytes */
#endif
};

/* A parameter as the process has read it from its environment or default. */
struct cw_nccl_param {
	struct cw_header header;
	__u32 tgid;
	__u32 image_id;
	__s64 value;
	char name[48]; /* NCCL's own: IbQpsPerConn */
};

enum cw_nccl_call_flags {
	CW_NCCL_CALL_FAILED = 1 << 0, /* it returned an error */
	CW_NCCL_CALL_RETURNED = 1 << 1,
};

/* One call of the API, in the order in which a process made them. */
struct cw_nccl_call {
	struct cw_header header;
	__u64 comm;
	__u32 tgid;
	__u32 tid;
	__u64 count;
	__u64 stream;
	__u32 arguments_hash; /* what the launch of it carries, too */
	__s32 root;	      /* or peer */
	__s32 reduction;      /* ncclRedOp_t */
	__u8 func;	      /* enum cw_nccl_func */
	__u8 datatype;	      /* ncclDataType_t */
	__u8 flags;	      /* enum cw_nccl_call_flags, of a writer that waits for the return */
	__u8 reserved;
};

/* With --api-returns: a call came back. Of one that hangs there is none. */
struct cw_nccl_return {
	struct cw_header header;
	__u64 comm;
	__u64 call_ns; /* time of the cw_nccl_call */
	__u32 tgid;
	__u32 tid;
	__u32 result; /* ncclResult_t: 7, in progress, is no error */
	__u32 reserved;
};

/* A task of a launch: which call it comes from is in the hash of its arguments. */
struct cw_nccl_task_ref {
	__u32 arguments_hash;
	__u32 task; /* low half of its address: equal ones are one task */
};

enum cw_nccl_launch_flags {
	CW_NCCL_LAUNCH_GRAPH = 1 << 0,	   /* its plan was captured: each start is a replay */
	CW_NCCL_LAUNCH_TRUNCATED = 1 << 1, /* more operations than were walked */
	CW_NCCL_LAUNCH_LAUNCHED = 1 << 2,  /* `launched` is valid */
	CW_NCCL_LAUNCH_FAULT = 1 << 3,	   /* some of it could not be read */
	CW_NCCL_LAUNCH_LOCAL = 1 << 4,	   /* its plan has nothing for a proxy */
};

#define CW_NCCL_LAUNCH_TASKS 4

/* The operations of one plan are given to the proxy thread. */
struct cw_nccl_launch {
	struct cw_header header;
	__u64 comm;
	__u32 tgid;
	__u32 tid;
	__u64 plan;
	__u64 shape; /* what its operations look like; 0: not known */
	/*
	 * NCCL's own count, this launch included: collectives of this communicator (seqNumber) or
	 * of all that share its connections (collOpCount before 2.26).
	 */
	__u64 launched;
	__u32 n_ops;
	__u16 n_tasks; /* the first are in here, the others in cw_nccl_launch_tasks */
	__u8 flags;    /* enum cw_nccl_launch_flags */
	__u8 reserved;
	struct cw_nccl_task_ref tasks[CW_NCCL_LAUNCH_TASKS];
};

#define CW_NCCL_MORE_TASKS 4

struct cw_nccl_launch_tasks {
	struct cw_header header;
	__u64 comm;
	__u64 plan;
	__u64 launch_ns; /* time of the cw_nccl_launch */
	__u32 tgid;
	__u16 first; /* index of the first one in here */
	__u16 n;
	struct cw_nccl_task_ref tasks[CW_NCCL_MORE_TASKS];
};

/* What a launch does, without what differs from one launch of it to the next. */
struct cw_nccl_shape_task {
	struct cw_header header;
	__u64 comm;
	__u64 shape;
	__u32 tgid;
	__u32 index;
	__u64 count;
	__u64 bytes; /* of p2p: to or from the peer */
	__s32 root;
	__s32 reduction;
	__u8 func;
	__u8 api_func; /* the call that it is a part of, where that is another one */
	__u8 datatype;
	__u8 algorithm;
	__u8 protocol;
	__u8 n_channels; /* 0: not told */
	__u8 reserved[2];
};

enum cw_nccl_op_flags {
	CW_NCCL_OP_OTHER_PROXY = 1 << 0, /* given to the proxy of another rank (PXN) */
};

/* Of grouped broadcasts: an operation is of all of them that go over its connection. */
#define CW_NCCL_NO_TASK (~0U)

/* One operation of the proxy: what a connection is to carry for a task. NCCL's ncclProxyOp. */
struct cw_nccl_op {
	__u64 connection; /* its address in the process of its proxy */
	__u64 nbytes;
	__u64 chunk_bytes;
	__u64 slice_bytes;
	__u64 loop_bytes;
	__u64 loop_offset_bytes;
	__u64 channel_bytes;
	__u32 nsteps;
	__u32 task; /* index of its task in the shape, or CW_NCCL_NO_TASK */
	__s32 root;
	__s32 peer;
	__s32 ring_index; /* this rank's place in the ring of the channel */
	__u8 channel;
	__u8 func;
	__u8 pattern; /* enum cw_nccl_pattern */
	__u8 protocol;
	__u8 algorithm;
	__u8 slice_steps;
	__u8 chunk_steps;
	__u8 datatype;
	__u8 reduction;
	__u8 registered;
	__u8 flags;	  /* enum cw_nccl_op_flags */
	__u8 proxy_index; /* lowest byte of cw_nccl_shape_ops.proxy_indices */
};

#define CW_NCCL_SHAPE_OPS 1

struct cw_nccl_shape_ops {
	struct cw_header header;
	__u64 comm;
	__u64 shape;
	__u32 tgid;
	__u32 n_ops; /* of the whole shape */
	__u32 first;
	__u32 n;
	struct cw_nccl_op ops[CW_NCCL_SHAPE_OPS];
	/* Of each, in NCCL's list of the proxies' pools: from 2.30 on by rank, before by local
	 * rank. */
	__u32 proxy_indices[CW_NCCL_SHAPE_OPS];
	__u32 reserved;
};

enum cw_nccl_transport {
	CW_NCCL_TRANSPORT_UNKNOWN = 0,
	CW_NCCL_TRANSPORT_IB = 1,     /* NCCL's own net_ib */
	CW_NCCL_TRANSPORT_SOCKET = 2, /* NCCL's own net_socket */
	CW_NCCL_TRANSPORT_PLUGIN = 3,
	CW_NCCL_TRANSPORT_LOCAL = 4,   /* P2P, SHM: nothing on the network */
	CW_NCCL_TRANSPORT_COLLNET = 5, /* the network's own reduction: ranks are -1, no endpoints */
};

enum cw_nccl_connection_flags {
	CW_NCCL_CONNECTION_SEND = 1 << 0,
	CW_NCCL_CONNECTION_SHARED = 1 << 1, /* its queue pairs serve other connections, too */
	CW_NCCL_CONNECTION_GDR = 1 << 2,
	CW_NCCL_CONNECTION_OUTSIDE = 1 << 3, /* read from the process's memory */
	CW_NCCL_CONNECTION_FAULT = 1 << 4,   /* some of it could not be read */
	/* Of a plugin, read once more: its endpoints are queue pairs that pointers lead to from
	 * net_comm, whose layout is not known. They may be another connection's. */
	CW_NCCL_CONNECTION_FOUND = 1 << 5,
};

enum cw_nccl_role {
	CW_NCCL_ROLE_DATA = 0, /* sender's end */
	CW_NCCL_ROLE_CLEAR_TO_SEND =
		1, /* receiver's end: it tells the sender where there is room */
	CW_NCCL_ROLE_FLUSH = 2,
	CW_NCCL_ROLE_CONTROL = 3, /* of sockets: sizes, and data where there is no other */
};

/* A queue pair, or a socket, of a connection. */
struct cw_nccl_endpoint {
	__u64 address; /* of struct ibv_qp, struct ncclSocket */
	__u32 number;  /* queue pair number, file descriptor */
	__u16 device;  /* index of NCCL's own list */
	__u8 role;     /* enum cw_nccl_role */
	__u8 depth;    /* of CW_NCCL_CONNECTION_FOUND: how many pointers lead there */
};

#define CW_NCCL_ENDPOINTS 8

/* A connection of the proxy, when its first operation was seen, or as it was found. */
struct cw_nccl_connection {
	struct cw_header header;
	__u32 tgid; /* whose proxy it is of */
	__u32 tid;
	__u64 comm; /* first seen with; 0: read from the outside */
	__u64 connection;
	__u64 net_comm;
	__u32 transport; /* enum cw_nccl_transport */
	__u32 flags;	 /* enum cw_nccl_connection_flags */
	/* Of the communicator, or of the one whose connections it shares. */
	__s32 rank;
	__s32 peer;
	__s32 channel;
	__s32 conn_index;
	__s32 net_dev;
	__u32 n_endpoints; /* of the whole connection */
	__u32 first;
	__u32 n;
	struct cw_nccl_endpoint endpoints[CW_NCCL_ENDPOINTS];
	__u64 socket_inodes[CW_NCCL_ENDPOINTS]; /* of each endpoint; 0: no socket, or not known */
};

#define CW_NCCL_NETWORK_BYTES 32

/* A network plugin that connections of a process go through. */
struct cw_nccl_network {
	struct cw_header header;
	__u64 net; /* address of its table of functions */
	__u32 tgid;
	__u32 image_id;
	char name[CW_NCCL_NETWORK_BYTES]; /* as it tells NCCL */
	char path[256];			  /* of the file that its functions are in */
};

enum cw_nccl_progress_flags {
	CW_NCCL_PROGRESS_END = 1 << 0, /* else: begin */
};

/* With --network-times: a proxy begins or ends an operation on a connection. */
struct cw_nccl_progress {
	struct cw_header header;
	__u64 connection;
	__u64 group;	  /* of operations that the proxy works on together: their begin and end */
	__u64 base_steps; /* of an end: steps of the connection before this operation */
	__u32 tgid;
	__u32 tid;
	__u32 nsteps; /* of the operation */
	__u32 flags;  /* enum cw_nccl_progress_flags */
};

enum cw_nccl_steps_flags {
	CW_NCCL_STEPS_IDLE = 1 << 0, /* nothing is under way there, and nothing waits */
	CW_NCCL_STEPS_BUSY = 1 << 1, /* the operation that `steps` ends with is under way */
};

/*
 * How far a connection is: NCCL's own count of steps, as of the end of the operation that it began
 * last. Read between read_ns and header.time_ns.
 */
struct cw_nccl_steps {
	struct cw_header header;
	__u64 connection;
	__u64 steps;
	__u64 read_ns;
	__u64 unchanged_ns; /* until then it was as the record before says; 0: there is none */
	__u32 tgid;
	__u32 flags; /* enum cw_nccl_steps_flags */
};

enum cw_tcp_socket_flags {
	CW_TCP_SOCKET_GONE = 1 << 0, /* not there any more: the counters are the last ones read */
	CW_TCP_SOCKET_IPV4 = 1 << 1,
	CW_TCP_SOCKET_FINAL = 1 << 2, /* with GONE: the counters that it ended with */
};

/* Counters of a TCP socket, the kernel's own (struct tcp_info), cumulative since it was opened. */
struct cw_tcp_socket {
	struct cw_header header;
	__u64 inode;
	__u64 netns; /* inode of its network namespace */
	__u32 tgid;
	__u32 fd;
	__u8 local_address[16]; /* IPv4 as ::ffff:a.b.c.d */
	__u8 remote_address[16];
	__u16 local_port;
	__u16 remote_port;
	__u32 flags;	      /* enum cw_tcp_socket_flags */
	__u64 sent_bytes;     /* tcpi_bytes_sent, retransmissions included */
	__u64 acked_bytes;    /* tcpi_bytes_acked, less one each for SYN and FIN */
	__u64 received_bytes; /* tcpi_bytes_received, less one for the FIN */
	__u64 retransmitted_bytes;
	__u64 unsent_bytes; /* written by the program, not sent yet; no FIN */
	__u32 sent_segments;
	__u32 received_segments;
	__u32 retransmitted_segments;
	__u32 rtt_us;
	__u32 mss_bytes;
	__u32 state; /* enum: TCP_ESTABLISHED 1 ... */
};

/* ncclSocketType, but for sockets of connections: its numbers may change, these do not. */
enum cw_nccl_socket_type {
	CW_NCCL_SOCKET_UNKNOWN = 0, /* never written */
	CW_NCCL_SOCKET_BOOTSTRAP = 1,
	CW_NCCL_SOCKET_PROXY = 2,	  /* messages to a proxy, and what it answers */
	CW_NCCL_SOCKET_NETWORK_SETUP = 3, /* by which the ends of a NET/IB connection meet */
	CW_NCCL_SOCKET_RAS = 4,
	CW_NCCL_SOCKET_TYPES = 5,
};

/* NCCL closes a TCP socket that is no connection's: what it carried in its whole life. */
struct cw_nccl_socket {
	struct cw_header header;
	__u32 tgid;
	__u32 tid;
	__u64 inode;
	__u64 tx_payload_bytes; /* written by the program, sent or not */
	__u64 rx_payload_bytes; /* arrived, read or not */
	__u64 retransmitted_bytes;
	__u32 type; /* enum cw_nccl_socket_type */
	__u32 reserved;
};

#endif
