// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "correlate/model/model.h"
#include "correlate/roles/facts.h"
#include "correlate/rows/row_sink.h"

namespace collwire::tabulate {

// Verdicts, findings, errors and events.
void rows_of_verdicts(const model::Model &model, const std::vector<roles::RoleGuess> &guesses,
                      rows::RowSink &sink);

} // namespace collwire::tabulate
