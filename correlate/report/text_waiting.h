// SPDX-License-Identifier: Apache-2.0
// How long ranks waited for the last one to call a collective, and how long it took from then on.
#pragma once

#include <string>
#include <vector>

#include "correlate/report/text_report.h"
#include "correlate/roles/facts.h"

namespace collwire::report {

// Empty: of no collective it is clear which of both was longer.
[[nodiscard]] std::string waiting_text(const model::Model &model,
                                       const std::vector<roles::RoleGuess> &guesses,
                                       const TextOptions &options);

} // namespace collwire::report
