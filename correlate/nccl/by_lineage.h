// SPDX-License-Identifier: Apache-2.0
// Connections of communicators of which only API calls were recorded: NCCL's proxy creates all
// queue pairs of a communicator in one thread, and the other ends belong to its other ranks.
#pragma once

#include "correlate/model/model.h"

namespace collwire::nccl {

// Adds a flow (`is_assumed`, inferred) for each of their ranks and each peer it sent to, with the
// sending queue pairs: more bytes out than in (the reverse path carries clear-to-send only).
// Ambiguous queue pairs are left out. A communicator that calls but has no queue pairs is added to
// the flows of others. Needs instances, and paired queue pairs with their bytes.
void assume_links(model::Model &model);

} // namespace collwire::nccl
