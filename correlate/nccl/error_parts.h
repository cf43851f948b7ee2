// SPDX-License-Identifier: Apache-2.0
// The signs of errors, one by one, before find_errors joins them.
#pragma once

#include <vector>

#include "correlate/model/model.h"
#include "correlate/nccl/errors.h"

namespace collwire::nccl {

// One for each warning text of a process: of recorded warnings, and of others read from memory. By
// process, then by time.
[[nodiscard]] std::vector<NcclError> errors_of_texts(const model::Model &model);
// One for each communicator with an error of a process.
[[nodiscard]] std::vector<NcclError> errors_of_results(const model::Model &model);
// One for each peer of a rank, with the queue pairs to and from it that are in error or were
// destroyed before their communicator. Queue pairs without a known connection are listed on their
// own.
[[nodiscard]] std::vector<NcclError> errors_of_queue_pairs(const model::Model &model);
// One for each process that exited without destroying its communicators, most ranks first.
[[nodiscard]] std::vector<NcclError> errors_of_processes(const model::Model &model);

} // namespace collwire::nccl
