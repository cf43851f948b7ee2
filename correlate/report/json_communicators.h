// SPDX-License-Identifier: Apache-2.0
// Communicators, their ranks and channels in the JSON report.
#pragma once

#include "correlate/report/json_sections.h"
#include "correlate/roles/facts.h"

namespace collwire::report {

// `detail`: with parameters that all ranks have alike.
[[nodiscard]] Json communicator_json(const model::Model &model, model::Index index,
                                     const roles::RoleGuess &guess, bool detail);

} // namespace collwire::report
