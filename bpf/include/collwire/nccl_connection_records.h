/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The records of NCCL connections and their progress. */
#ifndef COLLWIRE_NCCL_CONNECTION_RECORDS_H
#define COLLWIRE_NCCL_CONNECTION_RECORDS_H

#include "collwire/record.h"

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
	/*
	 * Of a plugin, read once more: its endpoints are queue pairs that pointers lead to from
	 * net_comm, whose layout is not known. They may belong to another connection.
	 */
	CW_NCCL_CONNECTION_FOUND = 1 << 5,
};

enum cw_nccl_role {
	CW_NCCL_ROLE_DATA = 0,		/* sender's end */
	CW_NCCL_ROLE_CLEAR_TO_SEND = 1, /* receiver's end: announces free buffers to the sender */
	CW_NCCL_ROLE_FLUSH = 2,
	CW_NCCL_ROLE_CONTROL = 3, /* of sockets: sizes, and data where there is no other */
};

/* A queue pair, or a socket, of a connection. */
struct cw_nccl_endpoint {
	__u64 address; /* of struct ibv_qp, struct ncclSocket */
	__u32 number;  /* queue pair number, file descriptor */
	__u16 device;  /* index of NCCL's own list */
	__u8 role;     /* enum cw_nccl_role */
	__u8 depth;    /* of CW_NCCL_CONNECTION_FOUND: the number of pointers on the way */
};

#define CW_NCCL_ENDPOINTS 8

/* A connection of a proxy, at its first operation, or as the recorder read it from memory. */
struct cw_nccl_connection {
	struct cw_header header;
	__u32 tgid; /* the proxy's process */
	__u32 tid;
	__u64 comm; /* of its first operation; 0: read by the recorder */
	__u64 connection;
	__u64 net_comm;
	__u32 transport; /* enum cw_nccl_transport */
	__u32 flags;	 /* enum cw_nccl_connection_flags */
	/* In the communicator, or in the one whose connections it shares. */
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

/* A network plugin that a process uses for its connections. */
struct cw_nccl_network {
	struct cw_header header;
	__u64 net; /* address of its table of functions */
	__u32 tgid;
	__u32 image_id;
	char name[CW_NCCL_NETWORK_BYTES]; /* as the plugin names itself */
	char path[256];			  /* of the file with its functions */
};

enum cw_nccl_progress_flags {
	CW_NCCL_PROGRESS_END = 1 << 0, /* else: start */
};

/* With --network-times: a proxy starts or completes an operation on a connection. */
struct cw_nccl_progress {
	struct cw_header header;
	__u64 connection;
	__u64 group;	  /* of operations that the proxy starts and completes together */
	__u64 base_steps; /* of a completion: steps of the connection before this operation */
	__u32 tgid;
	__u32 tid;
	__u32 nsteps; /* of the operation */
	__u32 flags;  /* enum cw_nccl_progress_flags */
};

enum cw_nccl_steps_flags {
	CW_NCCL_STEPS_IDLE = 1 << 0, /* no operation in flight, none waiting */
	CW_NCCL_STEPS_BUSY = 1 << 1, /* the last operation in `steps` is in flight */
};

/*
 * The progress of a connection: NCCL's own count of steps, up to the end of the operation that it
 * started last. Read between read_ns and header.time_ns.
 */
struct cw_nccl_steps {
	struct cw_header header;
	__u64 connection;
	__u64 steps;
	__u64 read_ns;
	__u64 unchanged_ns; /* the record before was true until then; 0: no record before */
	__u32 tgid;
	__u32 flags; /* enum cw_nccl_steps_flags */
};

/*
 * How a rank is connected with another rank of its node, as NCCL chose it: one bit for each
 * channel. [0]: collectives, [1]: sends and receives. A rank of the node without any connection yet
 * has a record, too. A later record replaces an earlier one.
 */
struct cw_nccl_local {
	struct cw_header header;
	__u64 comm;
	__u32 tgid;
	__s32 peer; /* in the communicator */
	__u64 p2p_send[2];
	__u64 p2p_recv[2];
	__u64 shm_send[2];
	__u64 shm_recv[2];
	__u64 net_send[2];
	__u64 net_recv[2];
};

CW_ASSERT_SIZE(cw_nccl_local, 128);
CW_ASSERT_SIZE(cw_nccl_network, 320);
CW_ASSERT_SIZE(cw_nccl_progress, 56);
CW_ASSERT_SIZE(cw_nccl_steps, 56);
CW_ASSERT_SIZE(cw_nccl_connection, 280);

#endif
