// SPDX-License-Identifier: Apache-2.0
// --job: the captures that have processes of a job.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/result.h"

namespace collwire::cli {

// Those of `files` that have no process of the job. Files that cannot be read are not among them.
// BadInput: no file has one, or the text fits several pods or containers; the message has the jobs
// that there are.
[[nodiscard]] Result<std::set<std::string>>
captures_without_job(const std::string &job, const std::vector<std::string> &files);

} // namespace collwire::cli
