// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "correlate/model/model.h"
#include "correlate/rows/row_sink.h"

namespace collwire::tabulate {

// What went wrong with ports, by time, and which operations used them then.
void rows_of_incidents(const model::Model &model, rows::RowSink &sink);

} // namespace collwire::tabulate
