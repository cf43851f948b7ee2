// SPDX-License-Identifier: Apache-2.0
// Bytes between ranks of one node, modelled from launches.
#pragma once

#include <string>

#include "correlate/report/text_report.h"

namespace collwire::report {

// Empty: no recorded communicator has several ranks on a node.
[[nodiscard]] std::string local_text(const model::Model &model, const TextOptions &options);

} // namespace collwire::report
