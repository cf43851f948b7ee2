/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * All records of collwire, for the few files that list every kind and field. Every other file
 * includes the family that it uses, so that a new record of one family does not rebuild the rest.
 */
#ifndef COLLWIRE_RECORDS_H
#define COLLWIRE_RECORDS_H

#include "collwire/gpu_records.h"
#include "collwire/loss_records.h"
#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_connection_records.h"
#include "collwire/nccl_error_records.h"
#include "collwire/nccl_launch_records.h"
#include "collwire/node_records.h"
#include "collwire/nvlink_records.h"
#include "collwire/port_records.h"
#include "collwire/post_records.h"
#include "collwire/qp_records.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "collwire/recorder_records.h"
#include "collwire/socket_records.h"
#include "collwire/wire_records.h"

#endif
