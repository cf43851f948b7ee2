// SPDX-License-Identifier: Apache-2.0
// The NVLink part of the JSON report.
#pragma once

#include "correlate/report/json_sections.h"

namespace collwire::report {

// null: neither a GPU's NVLinks nor an error of the NVIDIA driver is recorded.
[[nodiscard]] Json nvlink_json(const model::Model &model);

} // namespace collwire::report
