// SPDX-License-Identifier: Apache-2.0
// Which queue pairs are whose, of connections that go through a network plugin. Nothing of it is
// more than inferred.
#pragma once

#include "correlate/model/model.h"

namespace collwire::nccl {

// Gives connections of plugins that have no queue pairs the other ends of those that the connection
// has at its other end. Needs the connections of find_links.
void give_plugins_other_ends(model::Model &model);

// Gives those that have none yet those that the two processes have with one another: a queue pair
// that carried as many bytes as the operations on a connection come to. Where several connections
// come to the same, as many queue pairs as there are of them, in the order in which they were made:
// NCCL sets connections up by channel. Else, and where some of them were there before the
// recording, none of these gets one.
// Needs the links of find_links, the bytes of read_shapes, and instances.
void give_plugins_queue_pairs(model::Model &model);

} // namespace collwire::nccl
