/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The records of the TCP sockets that NCCL uses. */
#ifndef COLLWIRE_SOCKET_RECORDS_H
#define COLLWIRE_SOCKET_RECORDS_H

#include "collwire/record.h"

enum cw_tcp_socket_flags {
	CW_TCP_SOCKET_GONE = 1 << 0, /* closed: the counters are the last ones read */
	CW_TCP_SOCKET_IPV4 = 1 << 1,
	CW_TCP_SOCKET_FINAL = 1 << 2, /* with GONE: the final counters */
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

/* ncclSocketType, without the sockets of connections: NCCL's numbers may change, these do not. */
enum cw_nccl_socket_type {
	CW_NCCL_SOCKET_UNKNOWN = 0, /* never written */
	CW_NCCL_SOCKET_BOOTSTRAP = 1,
	CW_NCCL_SOCKET_PROXY = 2,	  /* messages to a proxy, and its answers */
	CW_NCCL_SOCKET_NETWORK_SETUP = 3, /* setup of a NET/IB connection */
	CW_NCCL_SOCKET_RAS = 4,
	CW_NCCL_SOCKET_TYPES = 5,
};

/* NCCL closes a TCP socket that belongs to no connection: the totals of its whole life. */
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

CW_ASSERT_SIZE(cw_tcp_socket, 144);
CW_ASSERT_SIZE(cw_nccl_socket, 64);

#endif
