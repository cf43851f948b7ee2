/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * NCCL's sockets that belong to no connection, read when NCCL closes them: a few for each rank and
 * communicator, and one for each NET/IB connection.
 */
#ifndef COLLWIRE_NCCL_SOCKETS_H
#define COLLWIRE_NCCL_SOCKETS_H

#include "nccl_connections.h"
#include "tcp_socket.h"
#include "collwire/socket_records.h"

#define MAX_SOCKET_LOOKS 32
#define SYN_AND_FIN	 2

/* Its FIN is in flight and not acknowledged. */
static __always_inline bool is_ending(struct sock *sk)
{
	__u8 state = BPF_CORE_READ(sk, __sk_common.skc_state);

	return state == TCP_FIN_WAIT1 || state == TCP_LAST_ACK || state == TCP_CLOSING;
}

struct written {
	__u64 bytes;
	__u32 changes; /* changes seen while another CPU works on the socket */
};

/*
 * What the program has written, once. In bytes_sent there is no SYN and no FIN, but all again that
 * a queue of this node refused; in bytes_acked the other way round.
 *
 * Meanwhile the kernel may send on, and the other end acknowledge: the CPU that does so has the
 * socket alone, counts bytes_sent before snd_nxt, bytes_acked before snd_una, and looks like more
 * than is acknowledged or on the way until both are counted. What is sent again counts as that
 * first, in bytes_retrans, then in bytes_sent: so long less is sent than acknowledged, by more than
 * a SYN and a FIN. Another thread that ends the stream sets the state first, then counts the FIN,
 * and is the socket's owner all the while. One that stays so is at work on the FIN that it has
 * counted.
 *
 * Where a CPU works on it for longer than the looks: with a FIN one byte too few, else, on the end
 * that connected, one too many, the SYN; what is being sent again is missing.
 */
static __always_inline struct written look_at_written(struct sock *sk)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	__u32 with_fin = is_ending(sk);
	__u32 owned = !!BPF_CORE_READ(sk, sk_lock.owned);
	__u32 end = BPF_CORE_READ(tp, write_seq);
	__u32 next = BPF_CORE_READ(tp, snd_nxt);
	__u32 first = BPF_CORE_READ(tp, snd_una);
	__u32 unsent = distance(next, end), unacked = distance(first, end);
	__u64 again = BPF_CORE_READ(tp, bytes_retrans);
	__u64 by_sent = BPF_CORE_READ(tp, bytes_sent) - again + unsent;
	__u64 by_acked = BPF_CORE_READ(tp, bytes_acked) + unacked;
	struct written w;

	/* A FIN is the last byte to be sent, and acknowledged. No branches: it is unrolled. */
	by_sent -= with_fin & (__u32) !!unsent;
	by_acked -= with_fin & (__u32) !!unacked;
	w.changes = (__u32)(by_sent > by_acked) | (__u32)(by_acked > by_sent + SYN_AND_FIN) |
		    (with_fin & owned) | (is_ending(sk) ^ with_fin) |
		    (BPF_CORE_READ(tp, snd_nxt) ^ next) | (BPF_CORE_READ(tp, snd_una) ^ first);
	w.bytes = by_sent < by_acked ? by_sent : by_acked;
	return w;
}

static __always_inline __u64 written_bytes(struct sock *sk)
{
	struct written w = {.changes = 1};

	/* Unrolled: the verifiers of Linux 5.10 and 6.1 refuse a loop that ends with a call. */
#pragma unroll
	for (int i = 0; i < MAX_SOCKET_LOOKS; i++) {
		if (w.changes)
			w = look_at_written(sk);
	}
	return w.bytes;
}

/*
 * Received bytes. A FIN is in bytes_received, and counted there before SOCK_DONE is set: if it
 * arrives meanwhile, the flag follows soon.
 */
static __always_inline __u64 arrived_bytes(struct sock *sk)
{
	__u64 received = BPF_CORE_READ((struct tcp_sock *)sk, bytes_received);
	bool with_fin = false;

#pragma unroll
	for (int i = 0; i < MAX_SOCKET_LOOKS; i++) {
		if (!with_fin)
			with_fin = BPF_CORE_READ(sk, __sk_common.skc_flags) >> SOCK_DONE & 1;
	}
	if (with_fin)
		received = BPF_CORE_READ((struct tcp_sock *)sk, bytes_received);
	return with_fin && received ? received - 1 : received;
}

static __always_inline void emit_socket(struct file *file, __u32 type)
{
	struct sock *sk = tcp_of(file);
	__u64 id = bpf_get_current_pid_tgid();
	struct cw_nccl_socket *r;

	if (!sk)
		return;
	r = RESERVE_RECORD(cw_nccl_socket, CW_KIND_NCCL_SOCKET, CW_LOSS_NCCL_SOCKET);
	if (!r)
		return;
	r->tgid = id >> 32;
	r->tid = (__u32)id;
	r->inode = BPF_CORE_READ(file, f_inode, i_ino);
	r->tx_payload_bytes = written_bytes(sk);
	r->rx_payload_bytes = arrived_bytes(sk);
	r->retransmitted_bytes = BPF_CORE_READ((struct tcp_sock *)sk, bytes_retrans);
	r->type = type;
	bpf_ringbuf_submit(r, 0);
}

/* ncclResult_t ncclSocketClose(struct ncclSocket *sock), from 2.26 on with another argument. */
SEC("uprobe")
int socket_closes(struct pt_regs *ctx)
{
	KEEP_OWN_STACK(ctx);
	__u64 sock = PT_REGS_PARM1(ctx);
	__u32 number = 0, type;
	struct file *file;
	__s32 fd = -1;

	if (!sock || is_held() || !tgid_wanted(bpf_get_current_pid_tgid() >> 32))
		return 0;
	if (!READ_FIELD(fd, sock, socket_fd) || !READ_FIELD(number, sock, socket_type)) {
		count_loss(CW_LOSS_NCCL_SOCKET);
		return 0;
	}
	if (fd < 0 || number >= CW_NCCL_SOCKET_TYPE_NUMBERS)
		return 0;
	type = layout.socket_types[number & (CW_NCCL_SOCKET_TYPE_NUMBERS - 1)];
	if (!type)
		return 0;
	file = socket_file(fd);
	if (file)
		emit_socket(file, type);
	return 0;
}

#endif
