// SPDX-License-Identifier: Apache-2.0
// Ready queries in each SQLite file. They need SQLite 3.25 (window functions).
#pragma once

#include <string_view>
#include <vector>

#include "correlate/rows/column.h"

namespace collwire::sqlite {

struct View {
    std::string_view name;
    std::string_view meaning;
    rows::Scope scope = rows::Scope::Report; // of the tables that it reads
    std::string_view select;
};

// A view may read those before it.
[[nodiscard]] std::vector<View> all_views();

} // namespace collwire::sqlite
