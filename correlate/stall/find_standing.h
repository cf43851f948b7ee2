// SPDX-License-Identifier: Apache-2.0
// The standing of all ranks, from joined captures.
#pragma once

#include <vector>

#include "correlate/model/model.h"
#include "correlate/roles/facts.h"
#include "correlate/stall/standing.h"

namespace collwire::stall {

// Of communicators with two ranks or more that were not ended. `model`: after model::join();
// `guesses`: roles::guess_roles() of it.
[[nodiscard]] Standings find_standing(const model::Model &model,
                                      const std::vector<roles::RoleGuess> &guesses);

// Whether a rank has no call and no launch although another of its communicator has some, or no
// rank has any: what was read began too late to compare where they stood.
[[nodiscard]] bool lacks_calls(const model::Model &model);

} // namespace collwire::stall
