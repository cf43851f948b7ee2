// SPDX-License-Identifier: Apache-2.0
// The GPU part of the JSON report.
#pragma once

#include "correlate/report/json_sections.h"

namespace collwire::report {

// null: no process was traced.
[[nodiscard]] Json gpu_json(const model::Model &model);

} // namespace collwire::report
