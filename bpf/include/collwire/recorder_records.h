/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Records for the recorder alone: never in a capture. */
#ifndef COLLWIRE_RECORDER_RECORDS_H
#define COLLWIRE_RECORDER_RECORDS_H

#include "collwire/record.h"

/* The first mapping of a file to execute code from. */
struct cw_file_mapped {
	struct cw_header header;
	__u32 tgid;
	__u32 reserved;
	__u64 inode;
};

/*
 * A TCP socket of an NCCL connection ends: its last counters, as struct tcp_sock has them, which
 * counts a SYN and a FIN as a byte each in acked_bytes and a FIN in received_bytes.
 */
struct cw_tcp_socket_end {
	struct cw_header header;
	__u64 inode;
	__u64 netns; /* inode of its network namespace */
	__u32 tgid;
	__u32 fd;
	__u8 local_address[16]; /* IPv4 as ::ffff:a.b.c.d */
	__u8 remote_address[16];
	__u16 local_port;
	__u16 remote_port;
	__u32 connected; /* by connect(), not by accept() */
	__u64 sent_bytes;
	__u64 acked_bytes;
	__u64 received_bytes;
	__u64 retransmitted_bytes;
	__u32 unsent_bytes;
	__u32 unacked_bytes; /* sent or not */
	__u32 unacked_segments;
	__u32 sent_segments;
	__u32 received_segments;
	__u32 retransmitted_segments;
	__u32 rtt_us;
	__u32 mss_bytes;
	__u32 state; /* before the end: enum TCP_ESTABLISHED 1 ... */
	__u32 fin_received;
};

CW_ASSERT_SIZE(cw_tcp_socket_end, 152);

#endif
