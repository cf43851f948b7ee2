// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "correlate/model/model.h"
#include "correlate/rows/row_sink.h"

namespace collwire::tabulate {

// Totals by tier, by process, between hosts, and by certainty.
void rows_of_totals(const model::Model &model, rows::RowSink &sink);

} // namespace collwire::tabulate
