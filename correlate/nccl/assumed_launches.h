// SPDX-License-Identifier: Apache-2.0
// Assumed launches for communicators of which only API calls were recorded.
#pragma once

#include "correlate/model/model.h"

namespace collwire::nccl {

// Makes one for each call, at the call's time, with an operation on each flow that the call may
// send over; its bytes are unknown (bytes_by_kind.h). Needs assume_links.
void assume_launches(model::Model &model);

} // namespace collwire::nccl
