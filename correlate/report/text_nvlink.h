// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "correlate/report/text_report.h"

namespace collwire::report {

// NVLinks of GPUs: bytes, errors and recoveries, and failures; "" if none is recorded.
[[nodiscard]] std::string nvlink_text(const model::Model &model, const TextOptions &options);

} // namespace collwire::report
