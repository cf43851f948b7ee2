// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace collwire::sqlite {

// docs/rows.md: all row types with their columns, and the views.
[[nodiscard]] std::string rows_document();

// docs/rows.schema.json: a JSON Schema (2020-12) of each row as a JSON object, below $defs by
// table.
[[nodiscard]] std::string rows_schema();

} // namespace collwire::sqlite
