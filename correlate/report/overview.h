// SPDX-License-Identifier: Apache-2.0
// The first lines of the text report: is something wrong, what ran, over what, and where the bytes
// went.
#pragma once

#include <string>
#include <vector>

#include "correlate/model/model.h"
#include "correlate/roles/facts.h"

namespace collwire::report {

struct OverviewLine {
    std::string name; // "NICs"
    std::string text;
};

// `guesses`: of its communicators. Lines for which there is nothing to say are left out.
[[nodiscard]] std::vector<OverviewLine> overview_of(const model::Model &model,
                                                    const std::vector<roles::RoleGuess> &guesses);

} // namespace collwire::report
