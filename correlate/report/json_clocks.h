// SPDX-License-Identifier: Apache-2.0
// Clocks of hosts in the JSON report.
#pragma once

#include "correlate/nccl/host_clocks.h"
#include "correlate/report/json_sections.h"

namespace collwire::report {

[[nodiscard]] Json clock_json(const model::Model &model, const nccl::HostClock &clock);
[[nodiscard]] Json clock_contradiction_json(const model::Model &model,
                                            const clocks::ClockContradiction &contradiction);

} // namespace collwire::report
