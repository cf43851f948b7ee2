// SPDX-License-Identifier: Apache-2.0
// Who is next to a rank, as NCCL laid out the channels of its communicator.
#pragma once

#include <cstdint>

#include "collwire/nccl_launch_records.h"
#include "correlate/nccl/gathered.h"
#include "correlate/nccl/nccl_facts.h"

namespace collwire::nccl {

// The newest that was told in the life of the instance; null: none was.
const Channel *channel_of(const CommStream &stream, const Instance &instance, std::uint32_t number);

// Whom an operation goes to or comes from, where it does not say so itself (before 2.24) and its
// connection is that of another communicator (splitShare), whose numbers are others: SaveProxy and
// ncclProxySaveOp in proxy.cc. -1: one of several.
std::int32_t neighbour_of(const Channel *channel, const cw_nccl_op &op, bool is_send);

} // namespace collwire::nccl
