// SPDX-License-Identifier: Apache-2.0
// What went wrong with ports, and whom it met.
#pragma once

#include <string>
#include <vector>

#include "correlate/nccl/port_incidents.h"
#include "correlate/report/text_report.h"
#include "correlate/roles/facts.h"

namespace collwire::report {

// Empty: nothing went wrong.
[[nodiscard]] std::string incidents_text(const model::Model &model,
                                         const std::vector<roles::RoleGuess> &guesses,
                                         const std::vector<nccl::PortIncident> &incidents,
                                         const TextOptions &options);

// For the first lines: one for all of them. Empty: nothing went wrong.
[[nodiscard]] std::string incidents_line(const model::Model &model,
                                         const std::vector<nccl::PortIncident> &incidents);

} // namespace collwire::report
