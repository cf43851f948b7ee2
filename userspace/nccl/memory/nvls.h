// SPDX-License-Identifier: Apache-2.0
// Reads a rank's place in NVLS (NVLink SHARP) in the memory of its process.
#pragma once

#include <optional>

#include "collwire/nccl_comm_records.h"
#include "userspace/nccl/layout/library_layout.h"
#include "userspace/process/process_view.h"

namespace collwire::nccl {

// Absent: the communicator has no heads, memory could not be read, or the layout lacks a field.
std::optional<cw_nccl_nvls> read_nvls(const process::ProcessView &process,
                                      const LibraryLayout &layout, const cw_nccl_comm &comm);

} // namespace collwire::nccl
