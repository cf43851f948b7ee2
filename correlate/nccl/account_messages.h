// SPDX-License-Identifier: Apache-2.0
// Wire bytes that follow from the sizes of NCCL's messages: of NET/IB's data queue pairs, and of
// the clear-to-send messages of their receivers. Computed, never measured.
//
// NCCL net_ib.cc, ncclIbMultiSend and ncclIbPostFifo, 2.20 to 2.32: the requests of one message
// follow from its size (message_rules.h), and its receiver has written one entry of 64 bytes
// before. Not so with several receives in one request (connections that share their queue pairs):
// unknown here.
#pragma once

#include "correlate/model/model.h"
#include "correlate/nccl/link_meter.h"

namespace collwire::nccl {

// An operation was launched on the connection; `share`: what it got of its bytes. Fills its wire
// bytes if they follow from the operation.
void note_messages(const model::Model &model, Link &link, const ShapeOp &op, OpShare &share);
// The same at the receiver's end.
void note_received(const model::Model &model, Link &link, const ShapeOp &op);

// Of all operations on the connection, without retransmissions and acknowledgements. Unknown if its
// queue pairs have different headers, or if the messages of one operation are unknown. Of a
// receiver: its clear-to-send messages.
[[nodiscard]] Known message_wire_bytes(const model::Model &model, const Link &link);

// Compares them with the wire bytes of connections that were measured as a whole:
// NcclFacts::messages.
void compare_messages(model::Model &model);

} // namespace collwire::nccl
