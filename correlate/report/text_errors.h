// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "correlate/report/text_report.h"

namespace collwire::report {

// Errors and NCCL's warnings, one line each; "" without any.
[[nodiscard]] std::string errors_text(const model::Model &model, const TextOptions &options);

} // namespace collwire::report
