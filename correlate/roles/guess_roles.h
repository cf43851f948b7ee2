// SPDX-License-Identifier: Apache-2.0
// What the communicators of a recording are probably for, as a value that the outputs print.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "correlate/model/model.h"
#include "correlate/roles/facts.h"

namespace collwire::roles {

// Where a communicator's name comes from: "nccl", "guessed"; "": it has neither.
[[nodiscard]] std::string_view name_source(const nccl::Communicator &comm, const RoleGuess &guess);
// "tp?"; "": no guess.
[[nodiscard]] std::string guess_mark(const RoleGuess &guess);

// One for each communicator: without a role and a reason where NCCL has a name. `model`: after
// model::join().
[[nodiscard]] std::vector<RoleGuess> guess_roles(const model::Model &model);

} // namespace collwire::roles
