// SPDX-License-Identifier: Apache-2.0
// Communicators that are not ready: which ranks have come, which have not, and why.
#pragma once

#include <vector>

#include "correlate/diagnose/diagnosis.h"

namespace collwire::diagnose {

// Fills in `diagnosis.unready`. The communicators of `diagnosis` must be complete.
void gather_unready(const std::vector<inspect::Inspection> &inspections, Diagnosis &diagnosis);

} // namespace collwire::diagnose
