/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The last counters of the TCP sockets of NCCL connections, read when TCP is done with a socket:
 * closed by its program or by the program's exit, or reset. Tracepoint sock:inet_sock_set_state,
 * which needs neither kprobes nor fentry; it fires for each change of state of each TCP socket of
 * the node, four or five in a connection's life, and never per packet. docs/sources/sockets.md.
 */
#include "shared_maps.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>
#include "tcp_socket.h"
#include "collwire/recorder_records.h"

static __always_inline void read_addresses(struct sock *sk, struct cw_tcp_socket_end *r)
{
	struct sock_common *common = &sk->__sk_common;

	r->local_port = bpf_ntohs(BPF_CORE_READ((struct inet_sock *)sk, inet_sport));
	r->remote_port = bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport));
	if (BPF_CORE_READ(sk, __sk_common.skc_family) == AF_INET) {
		r->local_address[10] = r->local_address[11] = 0xff;
		r->remote_address[10] = r->remote_address[11] = 0xff;
		bpf_core_read(&r->local_address[12], sizeof(__be32), &common->skc_rcv_saddr);
		bpf_core_read(&r->remote_address[12], sizeof(__be32), &common->skc_daddr);
	} else if (bpf_core_field_exists(common->skc_v6_daddr)) {
		bpf_core_read(r->local_address, sizeof(r->local_address),
			      &common->skc_v6_rcv_saddr);
		bpf_core_read(r->remote_address, sizeof(r->remote_address), &common->skc_v6_daddr);
	}
}

/* The socket's owner changes its state; the counters do not change meanwhile. */
static __always_inline void read_counters(struct sock *sk, struct cw_tcp_socket_end *r)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	__u32 end = BPF_CORE_READ(tp, write_seq);

	r->sent_bytes = BPF_CORE_READ(tp, bytes_sent);
	r->acked_bytes = BPF_CORE_READ(tp, bytes_acked);
	r->received_bytes = BPF_CORE_READ(tp, bytes_received);
	r->retransmitted_bytes = BPF_CORE_READ(tp, bytes_retrans);
	r->unsent_bytes = distance(BPF_CORE_READ(tp, snd_nxt), end);
	r->unacked_bytes = distance(BPF_CORE_READ(tp, snd_una), end);
	r->unacked_segments = BPF_CORE_READ(tp, packets_out);
	r->sent_segments = BPF_CORE_READ(tp, segs_out);
	r->received_segments = BPF_CORE_READ(tp, segs_in);
	r->retransmitted_segments = BPF_CORE_READ(tp, total_retrans);
	r->rtt_us = BPF_CORE_READ(tp, srtt_us) >> 3;
	r->mss_bytes = BPF_CORE_READ(tp, mss_cache);
	r->fin_received = BPF_CORE_READ(sk, __sk_common.skc_flags) >> SOCK_DONE & 1;
}

/* Before the new state is set. */
SEC("raw_tp/inet_sock_set_state")
int BPF_PROG(socket_state, struct sock *sk, int old_state, int new_state)
{
	struct cw_open_socket *open;
	struct cw_tcp_socket_end *r;
	__u64 key = (__u64)sk;

	if (new_state != TCP_CLOSE)
		return 0;
	open = bpf_map_lookup_elem(&open_sockets, &key);
	if (!open)
		return 0;
	if (open->ports == tcp_ports(sk) && !is_held()) {
		r = RESERVE_RECORD_IN(events, cw_tcp_socket_end, CW_KIND_TCP_SOCKET_END,
				      CW_LOSS_NCCL_SOCKET);
		if (r) {
			r->inode = open->inode;
			r->tgid = open->tgid;
			r->fd = open->fd;
			r->connected = open->connected;
			r->netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
			r->state = old_state;
			read_addresses(sk, r);
			read_counters(sk, r);
			bpf_ringbuf_submit(r, 0);
		}
	}
	bpf_map_delete_elem(&open_sockets, &key);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
