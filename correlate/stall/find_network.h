// SPDX-License-Identifier: Apache-2.0
// What the captures say for and against the network.
#pragma once

#include "correlate/model/model.h"
#include "correlate/stall/standing.h"

namespace collwire::stall {

[[nodiscard]] Network find_network(const model::Model &model);

} // namespace collwire::stall
