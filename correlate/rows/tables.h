// SPDX-License-Identifier: Apache-2.0
// All row types.
#pragma once

#include <span>

#include "correlate/rows/column.h"

namespace collwire::rows {

// In the order of every output.
[[nodiscard]] std::span<const TableInfo *const> all_tables();

} // namespace collwire::rows
