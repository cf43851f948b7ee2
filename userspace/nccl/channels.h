// SPDX-License-Identifier: Apache-2.0
// Rings and trees of a communicator, out of the memory of its process.
#pragma once

#include <cstddef>
#include <vector>

#include "collwire/records.h"
#include "userspace/nccl/plan.h"
#include "userspace/providers/process_view.h"

namespace collwire::nccl {

// One finished cw_nccl_channel record for each channel; fewer where the memory could not be read.
// Whatever the process has there, it is bounded in time and memory: the order of the ranks in all
// of its rings is of `bytes_left` at most, and what is beyond has no order.
std::vector<std::vector<std::byte>> read_channels(const ProcessView &process, const Plan &plan,
                                                  const cw_nccl_comm &comm, std::size_t bytes_left);

} // namespace collwire::nccl
