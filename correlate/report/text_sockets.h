// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "correlate/report/text_report.h"

namespace collwire::report {

// The TCP sockets of NCCL connections; "" without any.
[[nodiscard]] std::string sockets_text(const model::Model &model, const TextOptions &options);

} // namespace collwire::report
