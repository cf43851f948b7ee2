// SPDX-License-Identifier: Apache-2.0
// Launches of communicators of which calls alone were recorded.
#pragma once

#include "correlate/model/model.h"

namespace collwire::nccl {

// Makes one for each of their calls, at the moment of the call, with an operation on each link that
// the call may send over: of how many bytes is not known (bytes_by_kind.h). Needs assume_links.
void assume_launches(model::Model &model);

} // namespace collwire::nccl
