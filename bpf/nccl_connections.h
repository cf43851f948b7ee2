/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Connections of NCCL's proxies, read at the first operation on them. */
#ifndef COLLWIRE_NCCL_CONNECTIONS_H
#define COLLWIRE_NCCL_CONNECTIONS_H

#include "nccl_comms.h"
#include "tcp_socket.h"
#include "collwire/nccl_connection_records.h"

#define TRANSPORT_NET	  2 /* NCCL's numbers: P2P 0, SHM 1, NET 2, COLLNET 3 */
#define TRANSPORT_COLLNET 3
#define MAX_ENDPOINTS	  128 /* NCCL has at most 128 queue pairs and 64 sockets a connection */
#define MAX_FLUSH_QPS	  8   /* one for each device of a network with several */
#define INODE_TYPE	  0170000
#define INODE_SOCKET	  0140000

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct cw_nccl_connection_key);
	__type(value, __u8); /* failed tries, or CW_NCCL_CONNECTION_EMITTED */
} connections SEC(".maps");

struct connection_read {
	__u64 comm;
	__u64 connection;
	__u64 proxy_state;
	__u64 bias; /* load address of the file in the process, less its addresses */
	__u64 net_comm;
	__u32 transport;
	__u32 flags;
	__s32 rank;
	__s32 peer;
	__s32 channel;
	__s32 conn_index;
	__s32 net_dev;
	__u32 n_qps; /* endpoints without flush */
	__u32 n_endpoints;
};

static __always_inline void read_resources(struct connection_read *c)
{
	__u64 resources = 0, net = 0;
	__s32 send = 0, transport = -1, gdr = 0;
	__u32 shared = 0;
	bool read;

	if (fails_on_purpose(CW_NCCL_READ_CONNECTION) ||
	    !READ_FIELD(send, c->connection, connection_send) ||
	    !READ_FIELD(transport, c->connection, connection_transport) ||
	    !READ_FIELD(resources, c->connection, connection_resources)) {
		c->flags |= CW_NCCL_CONNECTION_FAULT;
		return;
	}
	READ_FIELD(shared, c->connection, connection_shared);
	if (send)
		c->flags |= CW_NCCL_CONNECTION_SEND;
	if (shared)
		c->flags |= CW_NCCL_CONNECTION_SHARED;
	if (transport == TRANSPORT_COLLNET) {
		/* Other resource types: how it sends is not followed. */
		c->transport = CW_NCCL_TRANSPORT_COLLNET;
		c->rank = c->peer = c->channel = c->conn_index = c->net_dev = -1;
		return;
	}
	if (transport != TRANSPORT_NET) {
		c->transport = CW_NCCL_TRANSPORT_LOCAL;
		return;
	}
	if (send) {
		read = READ_FIELD(c->net_comm, resources, send_net_comm) &&
		       READ_FIELD(c->rank, resources, send_tp_rank) &&
		       READ_FIELD(c->peer, resources, send_tp_remote_rank) &&
		       READ_FIELD(c->channel, resources, send_channel) &&
		       READ_FIELD(c->conn_index, resources, send_conn_index) &&
		       READ_FIELD(c->net_dev, resources, send_net_dev);
		READ_FIELD(gdr, resources, send_use_gdr);
	} else {
		read = READ_FIELD(c->net_comm, resources, recv_net_comm) &&
		       READ_FIELD(c->rank, resources, recv_tp_rank) &&
		       READ_FIELD(c->peer, resources, recv_tp_remote_rank) &&
		       READ_FIELD(c->channel, resources, recv_channel) &&
		       READ_FIELD(c->conn_index, resources, recv_conn_index) &&
		       READ_FIELD(c->net_dev, resources, recv_net_dev);
		READ_FIELD(gdr, resources, recv_use_gdr);
	}
	if (gdr)
		c->flags |= CW_NCCL_CONNECTION_GDR;
	if (!read || !c->net_comm || !READ_FIELD(net, c->proxy_state, proxy_state_net)) {
		c->flags |= CW_NCCL_CONNECTION_FAULT;
		return;
	}
	if (net == layout.net_ib + c->bias)
		c->transport = CW_NCCL_TRANSPORT_IB;
	else if (net == layout.net_socket + c->bias)
		c->transport = CW_NCCL_TRANSPORT_SOCKET;
	else
		c->transport = CW_NCCL_TRANSPORT_PLUGIN;
}

/* The receiver's device reads from itself, so that the GPU sees the data that arrived. */
static __always_inline __u64 flush_qp_at(const struct connection_read *c, __u32 device)
{
	__u64 at = c->net_comm + layout.ib_flush_qp;

	if (HAS(ib_recv_devs))
		at += layout.ib_recv_devs + (__u64)device * layout.ib_recv_dev_size;
	return at;
}

/* Only with GPUDirect; from 2.31 on they are made at their first use. */
static __always_inline __u32 count_flush_qps(const struct connection_read *c)
{
	__u64 first = 0;
	__s32 n = 1;

	if (!HAS(ib_flush_qp) || (c->flags & CW_NCCL_CONNECTION_SEND))
		return 0;
	if (HAS(ib_recv_devs) && (!HAS(ib_recv_dev_size) || !READ_FIELD(n, c->net_comm, ib_n_devs)))
		return 0;
	if (n < 1 || n > MAX_FLUSH_QPS)
		return 0;
	bpf_probe_read_user(&first, sizeof(first), (void *)flush_qp_at(c, 0));
	return first ? n : 0;
}

static __always_inline void count_endpoints(struct connection_read *c)
{
	__s32 n = 0;
	bool read = true;

	if (c->transport == CW_NCCL_TRANSPORT_IB)
		read = c->flags & CW_NCCL_CONNECTION_SEND
			       ? READ_FIELD(n, c->net_comm, ib_send_n_qps)
			       : READ_FIELD(n, c->net_comm, ib_recv_n_qps);
	else if (c->transport == CW_NCCL_TRANSPORT_SOCKET)
		read = READ_FIELD(n, c->net_comm, socket_n_socks);
	if (!read || n < 0 || n > MAX_ENDPOINTS) {
		c->flags |= CW_NCCL_CONNECTION_FAULT;
		return;
	}
	c->n_qps = n;
	c->n_endpoints = n;
	/* The control socket is one more. */
	if (c->transport == CW_NCCL_TRANSPORT_SOCKET)
		c->n_endpoints++;
	else if (c->transport == CW_NCCL_TRANSPORT_IB)
		c->n_endpoints += count_flush_qps(c);
}

/* Not inlined: its stack is free again afterwards. */
static __noinline long read_connection(struct connection_read *c)
{
	read_resources(c);
	count_endpoints(c);
	return 0;
}

static __always_inline bool read_qp(const struct connection_read *c, __u32 i,
				    struct cw_nccl_endpoint *into)
{
	bool send = c->flags & CW_NCCL_CONNECTION_SEND;
	__u64 at = c->net_comm + (send ? layout.ib_send_qps : layout.ib_recv_qps);
	__s32 device = 0;

	into->role = send ? CW_NCCL_ROLE_DATA : CW_NCCL_ROLE_CLEAR_TO_SEND;
	if (i >= c->n_qps) {
		device = i - c->n_qps;
		at = flush_qp_at(c, device);
		into->role = CW_NCCL_ROLE_FLUSH;
	} else if (HAS(ib_qp_size)) {
		at += (__u64)i * layout.ib_qp_size;
		READ_FIELD(device, at, ib_qp_dev_index);
	} else {
		at += i * sizeof(__u64);
	}
	if (HAS(ib_qp_qp))
		at += layout.ib_qp_qp;
	if (bpf_probe_read_user(&into->address, sizeof(into->address), (void *)at))
		return false;
	into->device = device;
	return READ_FIELD(into->number, into->address, ibv_qp_num);
}

/* The socket of a descriptor of this process. NULL: not a socket. */
static __always_inline struct file *socket_file(__u32 fd)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	struct file *file = NULL;

	if (fd >= BPF_CORE_READ(table, max_fds))
		return NULL;
	bpf_probe_read_kernel(&file, sizeof(file), BPF_CORE_READ(table, fd) + fd);
	if ((BPF_CORE_READ(file, f_inode, i_mode) & INODE_TYPE) != INODE_SOCKET)
		return NULL;
	return file;
}

/*
 * Its inode, read here: by the time that the recorder reads the record, the descriptor may be
 * another socket. 0: not a socket. A TCP socket is noted for its end (socket_ends.bpf.c).
 */
static __noinline __u64 note_socket(__u32 fd, __u32 connected)
{
	struct cw_open_socket open = {.fd = fd, .connected = connected};
	struct file *file = socket_file(fd);
	struct sock *sk;

	if (!file)
		return 0;
	open.inode = BPF_CORE_READ(file, f_inode, i_ino);
	open.tgid = bpf_get_current_pid_tgid() >> 32;
	sk = tcp_of(file);
	if (sk) {
		open.ports = tcp_ports(sk);
		bpf_map_update_elem(&open_sockets, &sk, &open, BPF_ANY);
	}
	return open.inode;
}

static __always_inline bool read_socket(const struct connection_read *c, __u32 i,
					struct cw_nccl_endpoint *into)
{
	if (i == 0) {
		into->address = c->net_comm + layout.socket_ctrl;
		into->role = CW_NCCL_ROLE_CONTROL;
	} else {
		into->address =
			c->net_comm + layout.socket_socks + (__u64)(i - 1) * layout.socket_size;
		into->role = CW_NCCL_ROLE_DATA;
	}
	return READ_FIELD(into->number, into->address, socket_fd);
}

/* One record: up to CW_NCCL_ENDPOINTS of the endpoints. False: it was dropped. */
static __always_inline bool emit_endpoints(struct connection_read *c, __u32 first)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct cw_nccl_connection *r;
	__u32 i;

	r = RESERVE_RECORD(cw_nccl_connection, CW_KIND_NCCL_CONNECTION, CW_LOSS_NCCL_CONNECTION);
	if (!r)
		return false;
	r->tgid = id >> 32;
	r->tid = (__u32)id;
	r->comm = c->comm;
	r->connection = c->connection;
	r->net_comm = c->net_comm;
	r->transport = c->transport;
	r->flags = c->flags;
	r->rank = c->rank;
	r->peer = c->peer;
	r->channel = c->channel;
	r->conn_index = c->conn_index;
	r->net_dev = c->net_dev;
	r->n_endpoints = c->n_endpoints;
	r->first = first;
	/* Unrolled: Linux 6.1 takes the compiler's loop for an endless one. */
#pragma unroll
	for (i = 0; i < CW_NCCL_ENDPOINTS; i++) {
		bool read;

		if (first + i >= c->n_endpoints)
			break;
		if (c->transport == CW_NCCL_TRANSPORT_IB)
			read = read_qp(c, first + i, &r->endpoints[i]);
		else
			read = read_socket(c, first + i, &r->endpoints[i]);
		if (fails_on_purpose(CW_NCCL_READ_ENDPOINT))
			read = false;
		if (c->transport == CW_NCCL_TRANSPORT_SOCKET && read)
			r->socket_inodes[i] = note_socket(r->endpoints[i].number,
							  c->flags & CW_NCCL_CONNECTION_SEND);
		if (!read) {
			r->flags |= CW_NCCL_CONNECTION_FAULT;
			c->flags |= CW_NCCL_CONNECTION_FAULT;
			break;
		}
		r->n = i + 1;
	}
	bpf_ringbuf_submit(r, 0);
	return true;
}

enum connection_left {
	NOTHING_LEFT,
	MORE_ENDPOINTS,
	UNREAD, /* its memory is not mapped: a later launch tries again */
};

/*
 * Emits a connection of this process that was not emitted before: some of its endpoints, from
 * `first` on.
 */
static __always_inline enum connection_left note_connection(__u64 comm,
							    const struct cw_nccl_comm_entry *entry,
							    __u64 connection, __u64 bias,
							    __u32 first)
{
	struct cw_nccl_connection_key key = {.connection = connection,
					     .generation_ns = entry->generation_ns,
					     .tgid = bpf_get_current_pid_tgid() >> 32};
	struct connection_read c;
	__u8 *known, tries;

	if (!connection)
		return NOTHING_LEFT;
	known = bpf_map_lookup_elem(&connections, &key);
	tries = known ? *known : 0;
	if (tries >= CW_NCCL_CONNECTION_EMITTED)
		return NOTHING_LEFT;
	__builtin_memset(&c, 0, sizeof(c));
	c.comm = comm;
	c.connection = connection;
	c.proxy_state = entry->proxy_state;
	c.bias = bias;
	read_connection(&c);
	/* A dropped record is emitted again with the next new shape on this connection. */
	if (!emit_endpoints(&c, first))
		return NOTHING_LEFT;
	if (c.flags & CW_NCCL_CONNECTION_FAULT) {
		tries++;
		bpf_map_update_elem(&connections, &key, &tries, BPF_ANY);
		return UNREAD;
	}
	if (first + CW_NCCL_ENDPOINTS < c.n_endpoints)
		return MORE_ENDPOINTS;
	tries = CW_NCCL_CONNECTION_EMITTED;
	bpf_map_update_elem(&connections, &key, &tries, BPF_ANY);
	return NOTHING_LEFT;
}

#endif
