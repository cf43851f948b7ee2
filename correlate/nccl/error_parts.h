// SPDX-License-Identifier: Apache-2.0
// What says that something went wrong, each by itself, before find_errors puts it together.
#pragma once

#include <vector>

#include "correlate/model/model.h"
#include "correlate/nccl/errors.h"

namespace collwire::nccl {

// One for each text of a warning of a process: those of warnings that were recorded, and those that
// were read from memory and are of none of these. In the order of processes, then of time.
[[nodiscard]] std::vector<NcclError> errors_of_texts(const model::Model &model);
// One for each communicator of a process that has an error.
[[nodiscard]] std::vector<NcclError> errors_of_results(const model::Model &model);
// One for each peer of a rank, of the queue pairs to and from it that are in error or were
// destroyed before their communicator. Queue pairs that no connection is known of are by
// themselves.
[[nodiscard]] std::vector<NcclError> errors_of_queue_pairs(const model::Model &model);
// One for each process that ended without ending its communicators: first that of most ranks.
[[nodiscard]] std::vector<NcclError> errors_of_processes(const model::Model &model);

} // namespace collwire::nccl
