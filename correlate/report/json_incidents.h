// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "correlate/nccl/port_incidents.h"
#include "correlate/nccl/shared_incidents.h"
#include "correlate/report/json_sections.h"

namespace collwire::report {

[[nodiscard]] Json incident_json(const model::Model &model, const nccl::PortIncident &incident);

[[nodiscard]] Json shared_incident_json(const model::Model &model,
                                        const nccl::SharedIncident &shared);

} // namespace collwire::report
