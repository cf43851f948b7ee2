// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "correlate/report/text_report.h"

namespace collwire::report {

// NCCL's part of the text report; "" if no recording has one.
[[nodiscard]] std::string nccl_text(const model::Model &model, const TextOptions &options);

} // namespace collwire::report
