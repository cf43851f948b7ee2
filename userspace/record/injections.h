// SPDX-License-Identifier: Apache-2.0
// The processes of --inject: each gets the guest library before the recording starts.
#pragma once

#include "base/result.h"
#include "userspace/record/options.h"

namespace collwire::record {

// Checks every process first, then loads the library into one after the other, and prints a line
// for each. The first failure ends it: no recording without a process that was named.
Result<void> inject_guests(const RecordOptions &options);

} // namespace collwire::record
