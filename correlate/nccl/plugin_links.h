// SPDX-License-Identifier: Apache-2.0
// Assigns queue pairs to connections that use a network plugin. The result is at most inferred.
#pragma once

#include "correlate/model/model.h"

namespace collwire::nccl {

// Gives plugin connections without queue pairs the peers of the other end's queue pairs. Needs the
// connections of find_links.
void give_plugins_other_ends(model::Model &model);

// Gives the rest the queue pairs between the two processes: one that carried as many bytes as the
// connection's operations. If several connections have equal bytes and there are equally many such
// queue pairs, in creation order: NCCL sets connections up by channel. Otherwise, and if some of
// them are pre-existing, none is assigned. Needs the flows of find_links, the bytes of read_shapes,
// and instances.
void give_plugins_queue_pairs(model::Model &model);

} // namespace collwire::nccl
