// SPDX-License-Identifier: Apache-2.0
// Leaves the records of chosen processes alone.
#pragma once

#include <functional>

#include "correlate/nccl/gathered.h"

namespace collwire::nccl {

using ProcessChooser = std::function<bool(Index session, std::uint32_t tgid)>;

// Before the records are joined. GPUs, their links and their errors belong to the node: they stay.
void keep_processes(Gathered &gathered, const ProcessChooser &keeps);

} // namespace collwire::nccl
