// SPDX-License-Identifier: Apache-2.0
// Pipelines of a job: ranks that send to their neighbours alone.
#pragma once

#include <cstdint>
#include <vector>

#include "correlate/roles/axes.h"
#include "correlate/roles/facts.h"

namespace collwire::roles {

struct Pipelines {
    GroupAxis axis; // a pipeline each; pairs of one pipeline have the number of the first
    bool has_any = false;
    bool is_known = true; // all of them have equally many stages
};

// Sets the guesses of groups that send, except to all others.
[[nodiscard]] Pipelines find_pipelines(const JobFacts &job, std::vector<RoleGuess> &guesses);

} // namespace collwire::roles
