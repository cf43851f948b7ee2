// SPDX-License-Identifier: Apache-2.0
// `collwire report A --against B`.
#pragma once

#include <cstddef>

#include "correlate/topology/topology.h"
#include "tools/cli/options.h"

namespace collwire::cli {

// An exit status. `topology`: null: none.
[[nodiscard]] int run_against(const ReportCommand &command, const topology::Topology *topology,
                              std::size_t width);

} // namespace collwire::cli
