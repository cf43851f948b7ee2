// SPDX-License-Identifier: Apache-2.0
// Ranks that lag in communicators whose waits no inspection shows: inside a node kernels wait for
// each other through the memory of their GPUs.
#pragma once

#include "correlate/diagnose/diagnosis.h"

namespace collwire::diagnose {

// For communicators that are not known to be stuck, whose ranks were inspected together and
// launched nothing between the samples: a rank that lags holds up the ranks that are ahead of it,
// unless it waits in another communicator itself. So does a rank without a process on a node that
// was inspected.
void find_ranks_behind(Diagnosis &diagnosis);

} // namespace collwire::diagnose
