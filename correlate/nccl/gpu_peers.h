// SPDX-License-Identifier: Apache-2.0
// Which GPUs of a host reach each other over NVLink, by NVML.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "correlate/nccl/gathered.h"

namespace collwire::nccl {

// By NCCL's bus ids. Absent: NVML was not asked, does not know, or lacks one of them.
[[nodiscard]] std::optional<bool> is_over_nvlink(const std::vector<GatheredNvlink> &gpus,
                                                 Index session, std::uint64_t bus_id,
                                                 std::uint64_t peer_bus_id);

} // namespace collwire::nccl
