// SPDX-License-Identifier: Apache-2.0
// An error as a sentence.
#pragma once

#include <string>
#include <string_view>

#include "correlate/model/model.h"

namespace collwire::nccl {

[[nodiscard]] std::string_view error_kind_name(ErrorKind kind);
[[nodiscard]] std::string_view error_order_name(ErrorOrder order); // "" for Unknown
// "queue pairs 45, 47 to rank 3 on node3 went into error, in AllReduce 12: ncclRemoteError":
// without host, process and rank.
[[nodiscard]] std::string error_text(const model::Model &model, const NcclError &error);
// The rank at the other end in the connection's numbering; -1: not known.
[[nodiscard]] std::int32_t peer_of(const NcclFacts &nccl, const NcclError &error);

} // namespace collwire::nccl
