// SPDX-License-Identifier: Apache-2.0
#include "outputs/sqlite/document.h"

#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "correlate/rows/tables.h"
#include "outputs/sqlite/views.h"

namespace collwire::sqlite {

namespace {

constexpr std::string_view HEAD = R"(# Rows

    collwire report PATH... --sqlite FILE [--detail]

writes what the report knows as tables of an SQLite file. Each table is one row type, declared once in `correlate/rows/`: this page, the tables, their types
and the table `columns` of each file are made from that, and a [JSON Schema](rows.schema.json) of rows. After a change of a declaration:
`COLLWIRE_UPDATE_ROWS=1 build/dev/tests/unit/rows_test`, then read the difference.

    sqlite3 -box FILE 'SELECT * FROM columns'
    sqlite3 -box FILE 'SELECT * FROM slowest_operations WHERE comm = 0 LIMIT 10'
    sqlite3 -box FILE 'SELECT * FROM not_recorded'
    sqlite3 -json FILE 'SELECT * FROM qps'                  # rows as in rows.schema.json

- **null means not known**, or not measured; the meaning of the column says which. 0 is a real count of zero. A column without null always has a value.
- Whose bytes, and how many, are two columns: `certainty` says how sure the owner is, `byte_source` how the bytes were measured.
- Numbers are those of the [report](report-schema.md), which explains them. `sum()` leaves out null: where some are null it is a lower bound.
- `*_realtime_ns` are nanoseconds since 1970 by the clock of the row's host. `datetime(x / 1000000000, 'unixepoch')` makes UTC of it.
- A number above 9223372036854775807, which only a damaged capture has, is stored as that. Text that is not valid UTF-8 has U+FFFD in its place.
- FILE appears when it is whole. A regular file that was there is replaced and keeps its mode; a new one has mode 0600. A capture is not replaced (status 2).
- Views need SQLite 3.25 or later. `PRAGMA user_version` is 1. It grows when a column changes its meaning or is removed. Columns may be added at any time.

)";

// Text of a cell of a Markdown table.
std::string meaning_of(const rows::ColumnInfo &column) {
    std::string text(column.meaning);
    if (column.words.empty())
        return text;
    text += " One of ";
    for (std::size_t i = 0; i < column.words.size(); ++i)
        text += fmt::format("{}`{}`", i == 0 ? "" : ", ", column.words[i]);
    return text + ".";
}

const char *scope_text(rows::Scope scope) {
    switch (scope) {
    case rows::Scope::Report:
        return "";
    case rows::Scope::Detail:
        return " Only with --detail.";
    case rows::Scope::Intervals:
        return " Only with --every.";
    }
    return "";
}

using Json = nlohmann::ordered_json;

Json schema_of(const rows::ColumnInfo &column) {
    const char *type = column.type == rows::CellType::Integer ? "integer" : "string";
    Json schema;
    schema["type"] = column.is_nullable ? Json{type, "null"} : Json(type);
    Json values = Json::array();
    for (const std::string_view word : column.words)
        values.push_back(word);
    if (column.unit == rows::Unit::Flag)
        values = {0, 1};
    if (column.is_nullable && !values.empty())
        values.push_back(nullptr);
    if (!values.empty())
        schema["enum"] = std::move(values);
    schema["description"] = fmt::format("{} Unit: {}.", column.meaning, unit_name(column.unit));
    return schema;
}

} // namespace

std::string rows_schema() {
    Json tables;
    for (const rows::TableInfo *table : rows::all_tables()) {
        Json properties, required = Json::array();
        for (const rows::ColumnInfo &column : table->columns) {
            properties[std::string(column.name)] = schema_of(column);
            required.push_back(column.name);
        }
        tables[std::string(table->name)] = {{"type", "object"},
                                            {"description", table->meaning},
                                            {"properties", std::move(properties)},
                                            {"required", std::move(required)}};
    }
    const Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                         {"title", "Rows of collwire report"},
                         {"$defs", std::move(tables)}};
    return schema.dump(1) + "\n";
}

std::string rows_document() {
    std::string text(HEAD);
    text += "| table | |\n|---|---|\n";
    for (const rows::TableInfo *table : rows::all_tables())
        text += fmt::format("| [`{0}`](#{0}) | {1} |\n", table->name, table->meaning);
    text += "\n## Views\n\n| view | |\n|---|---|\n";
    for (const View &view : all_views())
        text += fmt::format("| `{}` | {}{} |\n", view.name, view.meaning, scope_text(view.scope));
    for (const rows::TableInfo *table : rows::all_tables()) {
        text += fmt::format("\n## `{}`\n\n{}\n\n| column | unit | null | meaning |\n"
                            "|---|---|---|---|\n",
                            table->name, table->meaning);
        for (const rows::ColumnInfo &column : table->columns)
            text +=
                fmt::format("| `{}` | {} | {} | {} |\n", column.name, rows::unit_name(column.unit),
                            column.is_nullable ? "null" : "", meaning_of(column));
    }
    return text;
}

} // namespace collwire::sqlite
