// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "correlate/report/text_report.h"
#include "correlate/roles/facts.h"

namespace collwire::report {

// NCCL's part of the text report; "" if no recording has one.
[[nodiscard]] std::string nccl_text(const model::Model &model,
                                    const std::vector<roles::RoleGuess> &guesses,
                                    const TextOptions &options);

} // namespace collwire::report
