// SPDX-License-Identifier: Apache-2.0
// How long ranks waited for the last one to call a collective, and how long it took from then on.
#pragma once

#include "correlate/nccl/waiting.h"
#include "correlate/report/json_sections.h"

namespace collwire::report {

[[nodiscard]] Json waiting_json(const nccl::WaitingTimes &times);

} // namespace collwire::report
