// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>
#include <vector>

#include "correlate/model/model.h"
#include "correlate/nccl/port_incidents.h"
#include "correlate/nccl/waiting.h"

namespace collwire::report {

// Version of docs/report-schema.md. Minor: fields were added.
inline constexpr int JSON_SCHEMA_MAJOR = 1;
inline constexpr int JSON_SCHEMA_MINOR = 22;

struct JsonOptions {
    bool detail = false; // each rank's sent and received bytes for each NCCL operation
    // Of the model, if they are known already.
    const std::vector<nccl::WaitingTimes> *waiting = nullptr;
    const std::vector<nccl::PortIncident> *incidents = nullptr;
};

// Writes element by element, so that memory never holds the whole document.
void write_json(const model::Model &model, std::ostream &out, const JsonOptions &options = {});

} // namespace collwire::report
