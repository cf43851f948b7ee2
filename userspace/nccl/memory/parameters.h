// SPDX-License-Identifier: Apache-2.0
// Reads NCCL's parameters in a process: from its environment, or the defaults.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "userspace/nccl/layout/library_layout.h"
#include "userspace/process/process_view.h"

namespace collwire::nccl {

// By NCCL's own name (IbQpsPerConn). Only those that the process has used: NCCL reads each at its
// first use. `bias`: see load_bias.
std::map<std::string, std::int64_t> read_parameters(const process::ProcessView &process,
                                                    const LibraryLayout &layout,
                                                    std::uint64_t bias);

} // namespace collwire::nccl
