// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "correlate/nccl/nccl_facts.h"

namespace collwire::nccl {

// Collectives that were called and that NCCL did not start: by NCCL's own count, at the last two
// moments at which every call had been launched. 0 where NCCL's count does not tell.
[[nodiscard]] std::uint64_t never_started(const NcclFacts &nccl, const Instance &instance);

} // namespace collwire::nccl
