/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The header of every record. Each record is declared once: the BPF programs reserve it in the ring
 * buffer, the recorder appends it to the capture unchanged, the correlator reads it.
 * docs/capture-format.md describes all.
 *
 *
 * Rules: little endian, fixed width, no implicit padding, every size a multiple of 8, strings
 * zero-terminated and zero-filled. A record may grow at its end in a later minor version: readers
 * take the fields that length_bytes covers and zero the rest.
 */
#ifndef COLLWIRE_RECORD_H
#define COLLWIRE_RECORD_H

#ifndef __bpf__
#include <linux/types.h>
#endif

/*
 * For functions that programs and C++ share: not inlined, a BPF function takes at most five
 * arguments.
 */
#define CW_INLINE static inline __attribute__((always_inline))

#define CW_NAME_BYTES	 64 /* IB_DEVICE_NAME_MAX, RDMA counter names */
#define CW_IFNAME_BYTES	 16
#define CW_COMM_BYTES	 16
#define CW_CPU_USERSPACE 0xffff /* header.cpu of records made by the recorder */
#define CW_QPN_MASK	 0xffffff

#ifdef __cplusplus
#define CW_ASSERT_SIZE(type, bytes) static_assert(sizeof(struct type) == (bytes), #type)
#else
#define CW_ASSERT_SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type)
#endif

struct cw_header {
	__u32 length_bytes; /* of the whole record, this header included */
	__u16 kind;	    /* enum cw_kind */
	__u16 cpu;	    /* that made the record, or CW_CPU_USERSPACE */
	__u64 time_ns;	    /* CLOCK_MONOTONIC of the node */
};

CW_ASSERT_SIZE(cw_header, 16);

#endif
