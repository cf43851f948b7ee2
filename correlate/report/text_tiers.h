// SPDX-License-Identifier: Apache-2.0
// How much went how far: by tier, of all that was sent and of NCCL's operations.
#pragma once

#include <string>

#include "correlate/report/text_report.h"

namespace collwire::report {

[[nodiscard]] std::string tiers_text(const model::Model &model, const TextOptions &options);

// Sockets of NCCL's were counted.
[[nodiscard]] bool has_tcp(const model::Model &model);
// What NCCL's operations come to where nothing was measured, on queue pairs and over TCP.
[[nodiscard]] model::Known computed(const model::Sums &sums);

} // namespace collwire::report
