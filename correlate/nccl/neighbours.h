// SPDX-License-Identifier: Apache-2.0
// A rank's neighbours in the channels of its communicator.
#pragma once

#include <cstdint>

#include "collwire/nccl_launch_records.h"
#include "correlate/nccl/gathered.h"
#include "correlate/nccl/nccl_facts.h"

namespace collwire::nccl {

// The newest record in the instance's lifetime; null: not recorded.
const Channel *channel_of(const CommStream &stream, const Instance &instance, std::uint32_t number);

// Its place in NVLS, likewise.
const cw_nccl_nvls *nvls_of(const CommStream &stream, const Instance &instance);

// The peer of an operation that does not name it (before 2.24) and whose connection has another
// communicator's numbering (splitShare): SaveProxy and ncclProxySaveOp in proxy.cc. -1: one of
// several.
std::int32_t neighbour_of(const Channel *channel, const cw_nccl_nvls *nvls, const cw_nccl_op &op,
                          bool is_send);

} // namespace collwire::nccl
