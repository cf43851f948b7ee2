// SPDX-License-Identifier: Apache-2.0
// Sends and receives: a part of op_bytes.h.
#pragma once

#include <optional>

#include "correlate/nccl/op_bytes.h"

namespace collwire::nccl {

// `facts` of a sane operation of send or receive.
std::optional<OpBytes> derive_p2p_bytes(const OpFacts &facts);

} // namespace collwire::nccl
