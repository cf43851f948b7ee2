// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "correlate/report/text_report.h"

namespace collwire::report {

// NCCL's kernels on GPUs: coverage, and where the ranks' time went; "" if no process was traced.
[[nodiscard]] std::string gpu_text(const model::Model &model, const TextOptions &options);

} // namespace collwire::report
