// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "correlate/report/text_report.h"

namespace collwire::report {

// Bytes between hosts: a matrix for each kind of bytes, or a list where there are too many hosts.
[[nodiscard]] std::string node_pairs_text(const model::Model &model, const TextOptions &options);

} // namespace collwire::report
