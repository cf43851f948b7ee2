/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The records of NCCL errors, with the text that NCCL gives them. */
#ifndef COLLWIRE_NCCL_ERROR_RECORDS_H
#define COLLWIRE_NCCL_ERROR_RECORDS_H

#include "collwire/record.h"

enum cw_nccl_result_of {
	CW_NCCL_RESULT_OF_COMM = 0,  /* asyncResult of the communicator */
	CW_NCCL_RESULT_OF_PROXY = 1, /* of its proxy, which has stopped */
};

/* An error that NCCL stores for a communicator; never ncclSuccess or ncclInProgress. */
struct cw_nccl_result {
	struct cw_header header;
	__u64 comm;
	__u64 before_ns; /* not set at that time; 0: first read */
	__u32 tgid;
	__u32 result; /* ncclResult_t */
	__u32 of;     /* enum cw_nccl_result_of */
	__u32 reserved;
};

#define CW_NCCL_TEXT_BYTES 512

/* ncclLastError: the text of the last warning of a process. */
struct cw_nccl_last_error {
	struct cw_header header;
	__u64 before_ns; /* another text or none at that time; 0: first read */
	__u32 tgid;
	__u32 image_id;
	char text[CW_NCCL_TEXT_BYTES];
};

#define CW_NCCL_FORMAT_BYTES 256

/*
 * With --warnings: NCCL warns. Its text is formatted after the probe: it is in ncclLastError at the
 * next warning of the process, or in a cw_nccl_last_error that is read before that. NCCL may still
 * demote the warning to information (ncclDebugNoWarn): then the text is in neither.
 */
struct cw_nccl_warning {
	struct cw_header header;
	__u32 tgid;
	__u32 tid;
	__u32 line;
	__u32 image_id;
	char file[CW_NAME_BYTES];
	char format[CW_NCCL_FORMAT_BYTES];
	char earlier[CW_NCCL_TEXT_BYTES]; /* ncclLastError at that time */
};

CW_ASSERT_SIZE(cw_nccl_result, 48);
CW_ASSERT_SIZE(cw_nccl_last_error, 544);
CW_ASSERT_SIZE(cw_nccl_warning, 864);

#endif
