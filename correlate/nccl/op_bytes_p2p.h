// SPDX-License-Identifier: Apache-2.0
// Bytes of sends and receives: a part of op_bytes.h.
#pragma once

#include <optional>

#include "correlate/nccl/op_bytes.h"

namespace collwire::nccl {

// `facts` of a valid send or receive operation.
std::optional<OpBytes> derive_p2p_bytes(const OpFacts &facts);

} // namespace collwire::nccl
