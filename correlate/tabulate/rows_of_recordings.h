// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "correlate/model/model.h"
#include "correlate/rows/row_sink.h"

namespace collwire::tabulate {

// Hosts, captures, sources, losses, warnings, and the differences of clocks.
void rows_of_recordings(const model::Model &model, rows::RowSink &sink);

} // namespace collwire::tabulate
