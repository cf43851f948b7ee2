/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The kernel's TCP sockets. */
#ifndef COLLWIRE_TCP_SOCKET_H
#define COLLWIRE_TCP_SOCKET_H

#include "kernel_types.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#define AF_INET	      2
#define AF_INET6      10
#define IPPROTO_TCP   6
#define SOCK_DONE     1 /* bit of sk_flags: the other end's FIN has arrived */
#define TCP_FIN_WAIT1 4
#define TCP_CLOSE     7
#define TCP_LAST_ACK  9
#define TCP_LISTEN    10
#define TCP_CLOSING   11

/* NULL: not a TCP socket, or a listening one. */
static __always_inline struct sock *tcp_of(struct file *file)
{
	struct socket *socket = BPF_CORE_READ(file, private_data);
	struct sock *sk = BPF_CORE_READ(socket, sk);
	__u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);

	if ((family != AF_INET && family != AF_INET6) ||
	    READ_INTEGER(sk, sk_protocol) != IPPROTO_TCP ||
	    BPF_CORE_READ(sk, __sk_common.skc_state) == TCP_LISTEN)
		return NULL;
	return sk;
}

/* Its ports, local and remote, as one number. They stay until the socket is freed. */
static __always_inline __u32 tcp_ports(struct sock *sk)
{
	__u32 local = BPF_CORE_READ((struct inet_sock *)sk, inet_sport);

	return local << 16 | BPF_CORE_READ(sk, __sk_common.skc_dport);
}

/*
 * From `from` to `to` in TCP sequence numbers: 0 if they moved past each other while they were
 * read.
 */
static __always_inline __u32 distance(__u32 from, __u32 to)
{
	return (__s32)(to - from) > 0 ? to - from : 0;
}

#endif
