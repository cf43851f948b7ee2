/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Values of the BPF maps that the recorder reads as well. They never reach a capture. */
#ifndef COLLWIRE_TABLES_H
#define COLLWIRE_TABLES_H

#include "collwire/records.h"

struct cw_losses {
	__u64 records[CW_LOSS_CLASSES];
};

struct cw_live_qp {
	struct cw_qp_key key;
	__u64 start_boottime_ns; /* of the owner's thread group leader */
	__u32 tgid;		 /* of the owner, 0: kernel */
	__u32 type;		 /* enum ib_qp_type */
	__u32 flags;		 /* enum cw_qp_flags */
	__u32 state;		 /* last known enum ib_qp_state, 0xff: not known */
};

struct cw_epoch_key {
	__u32 tgid;
	__u32 qpn;
};

CW_ASSERT_SIZE(cw_live_qp, 40);

#endif
