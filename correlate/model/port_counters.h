// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "correlate/model/model.h"

namespace collwire::model {

// Sets Port::bytes of every port: its own counter over the recording, in the project's wire_bytes
// where the counter's extent is known, and the part that its queue pairs explain.
void reconcile_ports(Model &model);

} // namespace collwire::model
