// SPDX-License-Identifier: Apache-2.0
// Connections of communicators of which calls alone were recorded: NCCL's proxy makes all queue
// pairs of a communicator in one thread, and the other ends are its other ranks'.
#pragma once

#include "correlate/model/model.h"

namespace collwire::nccl {

// Adds a link (`is_assumed`, inferred) for each of their ranks and each peer that it sent to, with
// the queue pairs that carried more from here than to here: the other way goes no more than NCCL's
// clear-to-send. Queue pairs of which several communicators could be it are left out. A
// communicator that calls and has none is added to the links of others. Needs instances, and paired
// queue pairs with their bytes.
void assume_links(model::Model &model);

} // namespace collwire::nccl
