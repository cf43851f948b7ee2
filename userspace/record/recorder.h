// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "userspace/record/options.h"

namespace collwire::record {

// Records until the duration, the command or a signal ends it. Prints messages on stderr, the probe
// list of a dry run on stdout. Returns the exit status (base/exit_status.h), or the command's if
// that is greater.
int run_record(const RecordOptions &options);

} // namespace collwire::record
