// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "correlate/model/model.h"
#include "correlate/nccl/last_calls.h"
#include "correlate/rows/row_sink.h"

namespace collwire::tabulate {

// Waiting for the last rank, by kind of collective, the longest first.
void rows_of_waiting(const model::Model &model, const nccl::LastCalls &last_calls,
                     rows::RowSink &sink);

} // namespace collwire::tabulate
