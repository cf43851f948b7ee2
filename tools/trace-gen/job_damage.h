// SPDX-License-Identifier: Apache-2.0
// Damages a capture that was written whole.
#pragma once

#include <string>

#include "base/result.h"
#include "tools/trace-gen/job_options.h"
#include "tools/trace-gen/job_truth.h"

namespace collwire::trace_gen {

// The file at `path`: sets its files, sizes and good_bytes. Failed where a file cannot be read or
// written.
Result<void> damage_capture(const std::string &path, Damage damage, CaptureTruth &truth);

} // namespace collwire::trace_gen
