// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "correlate/model/model.h"

namespace collwire::model {

// Sets Port::bytes of every port: its own counter over the recording, converted to wire_bytes if
// the counter's extent is known, and the part that belongs to known queue pairs.
void reconcile_ports(Model &model);

} // namespace collwire::model
