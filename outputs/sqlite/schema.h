// SPDX-License-Identifier: Apache-2.0
// SQL that a row's declaration becomes.
#pragma once

#include <string>
#include <string_view>

#include "correlate/rows/column.h"

namespace collwire::sqlite {

// CREATE TABLE: types, NOT NULL, and for columns of few words CHECK.
[[nodiscard]] std::string create_table(const rows::TableInfo &table);
// INSERT of one row, with a parameter for each column.
[[nodiscard]] std::string insert_into(const rows::TableInfo &table);

// Tables about the tables: what the file documents of itself.
inline constexpr std::string_view CREATE_DOCUMENTATION = R"(
CREATE TABLE "tables" (
  "table_name" TEXT NOT NULL, "meaning" TEXT NOT NULL, "rows" INTEGER NOT NULL);
CREATE TABLE "columns" (
  "table_name" TEXT NOT NULL, "column_name" TEXT NOT NULL, "unit" TEXT NOT NULL,
  "meaning" TEXT NOT NULL, "is_nullable" INTEGER NOT NULL);
CREATE TABLE "views" ("view_name" TEXT NOT NULL, "meaning" TEXT NOT NULL);
)";

// Columns and row types that are added leave a file readable by the same queries: PRAGMA
// user_version grows only when one is renamed, or changes its meaning.
inline constexpr int SCHEMA_VERSION = 1;

} // namespace collwire::sqlite
