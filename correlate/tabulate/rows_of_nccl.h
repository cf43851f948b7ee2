// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "correlate/model/model.h"
#include "correlate/nccl/last_calls.h"
#include "correlate/roles/facts.h"
#include "correlate/rows/row_sink.h"

namespace collwire::tabulate {

// Communicators with their ranks, pairs of ranks, and flows.
void rows_of_communicators(const model::Model &model, const std::vector<roles::RoleGuess> &guesses,
                           rows::RowSink &sink);
// Operations with their tiers; with `has_detail` also each rank's calls.
void rows_of_operations(const model::Model &model, const nccl::LastCalls &last_calls,
                        bool has_detail, rows::RowSink &sink);

} // namespace collwire::tabulate
