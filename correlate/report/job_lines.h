// SPDX-License-Identifier: Apache-2.0
// The jobs in the captures, where there are several.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

#include "correlate/model/jobs.h"

namespace collwire::report {

// Nothing for a single job.
[[nodiscard]] std::vector<std::string> job_lines(const std::vector<model::ClusterJob> &jobs);
[[nodiscard]] nlohmann::ordered_json jobs_json(const std::vector<model::ClusterJob> &jobs);

} // namespace collwire::report
