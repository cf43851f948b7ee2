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

#endif
