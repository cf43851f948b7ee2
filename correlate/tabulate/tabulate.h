// SPDX-License-Identifier: Apache-2.0
// The joined model as rows.
#pragma once

#include "correlate/model/model.h"
#include "correlate/rows/row_sink.h"

namespace collwire::tabulate {

// All rows, in the order of their tables within each family. `has_detail`: also those of tables
// that need it. `model`: after model::join().
void tabulate(const model::Model &model, bool has_detail, rows::RowSink &sink);

} // namespace collwire::tabulate
