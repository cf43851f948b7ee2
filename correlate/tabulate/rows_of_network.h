// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "correlate/model/model.h"
#include "correlate/rows/row_sink.h"

namespace collwire::tabulate {

// Queue pairs with their datagram peers, sockets and ports.
void rows_of_network(const model::Model &model, rows::RowSink &sink);

} // namespace collwire::tabulate
