// SPDX-License-Identifier: Apache-2.0
// NCCL's parameters as a process has them: what it read from its environment, or the default.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "userspace/nccl/layout/library_layout.h"
#include "userspace/process/process_view.h"

namespace collwire::nccl {

// By NCCL's own name (IbQpsPerConn), those that the process has used by now: NCCL reads each when
// it needs it first. `bias`: see load_bias.
std::map<std::string, std::int64_t>
read_parameters(const ProcessView &process, const LibraryLayout &layout, std::uint64_t bias);

} // namespace collwire::nccl
