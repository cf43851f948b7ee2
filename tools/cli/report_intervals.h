// SPDX-License-Identifier: Apache-2.0
// `collwire report --every`.
#pragma once

#include "correlate/intervals/render.h"
#include "correlate/topology/topology.h"
#include "tools/cli/options.h"

namespace collwire::cli {

// An exit status. `topology`: null: none.
[[nodiscard]] int run_intervals(const ReportCommand &command, const topology::Topology *topology,
                                const intervals::TextStyle &style);

} // namespace collwire::cli
