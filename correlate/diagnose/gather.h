// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "correlate/diagnose/diagnosis.h"

namespace collwire::diagnose {

// The inspected communicators with their ranks; causes are not filled in yet.
[[nodiscard]] Diagnosis gather(const std::vector<inspect::Inspection> &inspections);

} // namespace collwire::diagnose
