// SPDX-License-Identifier: Apache-2.0
// What the text calls a communicator. A guess has a question mark: it is never taken for a name.
#pragma once

#include <string>

#include "correlate/nccl/nccl_facts.h"
#include "correlate/roles/facts.h"

namespace collwire::report {

// "data0", "dp?", else its hash; for places that also have its number.
[[nodiscard]] std::string short_comm_label(const nccl::Communicator &comm,
                                           const roles::RoleGuess &guess);
// "data0", "0x1122334455667788 (dp?)", else its hash.
[[nodiscard]] std::string long_comm_label(const nccl::Communicator &comm,
                                          const roles::RoleGuess &guess);

} // namespace collwire::report
