// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "correlate/nccl/errors.h"
#include "correlate/report/json_sections.h"

namespace collwire::report {

[[nodiscard]] Json error_json(const model::Model &model, const nccl::NcclError &error);

} // namespace collwire::report
