// SPDX-License-Identifier: Apache-2.0
// Bytes by tier: of everything that was sent, and of NCCL operations.
#pragma once

#include <string>
#include <vector>

#include "correlate/report/text_report.h"
#include "correlate/roles/facts.h"

namespace collwire::report {

[[nodiscard]] std::string tiers_text(const model::Model &model,
                                     const std::vector<roles::RoleGuess> &guesses,
                                     const TextOptions &options);

// NCCL's sockets were counted.
[[nodiscard]] bool has_tcp(const model::Model &model);
// Payload computed from NCCL's operations for queue pairs and TCP connections without a
// measurement.
[[nodiscard]] model::Known computed(const model::Sums &sums);

} // namespace collwire::report
