// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "correlate/diagnose/diagnosis.h"

namespace collwire::diagnose {

// The communicators that witnesses speak of, with their ranks; no causes yet.
[[nodiscard]] Diagnosis gather(const std::vector<inspect::Inspection> &inspections);

} // namespace collwire::diagnose
