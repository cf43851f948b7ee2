// SPDX-License-Identifier: Apache-2.0
#include "outputs/sqlite/schema.h"

#include <fmt/format.h>

namespace collwire::sqlite {

std::string create_table(const rows::TableInfo &table) {
    std::string sql = fmt::format("CREATE TABLE \"{}\" (", table.name);
    const char *separator = "\n  ";
    for (const rows::ColumnInfo &column : table.columns) {
        sql += fmt::format("{}\"{}\" {}{}", separator, column.name,
                           column.type == rows::CellType::Integer ? "INTEGER" : "TEXT",
                           column.is_nullable ? "" : " NOT NULL");
        if (!column.words.empty()) {
            sql += fmt::format(" CHECK (\"{}\" IN (", column.name);
            for (std::size_t i = 0; i < column.words.size(); ++i)
                sql += fmt::format("{}'{}'", i == 0 ? "" : ", ", column.words[i]);
            sql += "))";
        } else if (column.unit == rows::Unit::Flag) {
            sql += fmt::format(" CHECK (\"{}\" IN (0, 1))", column.name);
        }
        separator = ",\n  ";
    }
    return sql + ")";
}

std::string insert_into(const rows::TableInfo &table) {
    std::string sql = fmt::format("INSERT INTO \"{}\" VALUES (", table.name);
    for (std::size_t i = 0; i < table.columns.size(); ++i)
        sql += i == 0 ? "?" : ", ?";
    return sql + ")";
}

} // namespace collwire::sqlite
