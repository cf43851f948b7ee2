// SPDX-License-Identifier: Apache-2.0
// The declarations of rows, and the documents that are made from them. After a wanted change:
//   COLLWIRE_UPDATE_ROWS=1 build/dev/tests/unit/rows_test && git diff docs
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "correlate/rows/row_sink.h"
#include "correlate/rows/tables.h"
#include "outputs/sqlite/document.h"
#include "outputs/sqlite/schema.h"
#include "outputs/sqlite/views.h"

namespace collwire::rows {
namespace {

struct SampleRow {
    std::uint64_t count = 0;
    std::optional<std::int64_t> rank;
    std::string host;
    std::optional<std::string> name;
    bool is_large = false;
};

} // namespace

template <> struct Declaration<SampleRow> {
    static constexpr std::string_view TABLE = "samples";
    static constexpr std::string_view MEANING = "For tests.";
    static constexpr Scope SCOPE = Scope::Report;
    static constexpr std::tuple COLUMNS{
        COLUMN(SampleRow, count, Count, "A."),   COLUMN(SampleRow, rank, Number, "B."),
        COLUMN(SampleRow, host, Text, "C."),     COLUMN(SampleRow, name, Text, "D."),
        COLUMN(SampleRow, is_large, Flag, "E."),
    };
};

namespace {

bool ends_with(std::string_view text, std::string_view end) {
    return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// For each column of each table.
template <typename Visit> void for_each_column(Visit visit) {
    for (const TableInfo *table : all_tables())
        for (const ColumnInfo &column : table->columns) {
            SCOPED_TRACE(std::string(table->name) + "." + std::string(column.name));
            visit(column);
        }
}

TEST(Rows, NamesAreUniqueAndInSnakeCase) {
    const std::regex snake_case("[a-z][a-z0-9]*(_[a-z0-9]+)*");
    std::set<std::string_view> tables;
    for (const TableInfo *table : all_tables()) {
        EXPECT_TRUE(tables.insert(table->name).second) << table->name;
        EXPECT_TRUE(std::regex_match(std::string(table->name), snake_case)) << table->name;
        std::set<std::string_view> columns;
        for (const ColumnInfo &column : table->columns) {
            EXPECT_TRUE(columns.insert(column.name).second) << table->name << "." << column.name;
            EXPECT_TRUE(std::regex_match(std::string(column.name), snake_case)) << column.name;
        }
    }
    for (const sqlite::View &view : sqlite::all_views())
        EXPECT_TRUE(tables.insert(view.name).second) << view.name << " is a table, too";
    EXPECT_GT(tables.size(), 20U);
}

TEST(Rows, EveryColumnHasAUnitAndASentence) {
    for (const TableInfo *table : all_tables())
        EXPECT_TRUE(ends_with(table->meaning, ".")) << table->name;
    for_each_column([](const ColumnInfo &column) {
        EXPECT_FALSE(unit_name(column.unit).empty());
        EXPECT_TRUE(ends_with(column.meaning, ".")) << column.meaning;
        EXPECT_EQ(column.meaning.find('|'), std::string_view::npos) << "it is in a table";
    });
}

TEST(Rows, UnitsAreInTheNames) {
    for_each_column([](const ColumnInfo &column) {
        const bool is_time = column.unit == Unit::Nanoseconds || column.unit == Unit::Realtime ||
                             column.unit == Unit::Common;
        EXPECT_EQ(ends_with(column.name, "_bytes"),
                  column.unit == Unit::Bytes || column.name == "qps_without_bytes");
        EXPECT_EQ(ends_with(column.name, "_ns"), is_time);
        EXPECT_EQ(ends_with(column.name, "realtime_ns"), column.unit == Unit::Realtime);
        EXPECT_EQ(ends_with(column.name, "_us"), column.unit == Unit::Microseconds);
        EXPECT_EQ(ends_with(column.name, "_mbps"), column.unit == Unit::MegabitsPerSecond);
        const bool is_text = column.unit == Unit::Text || column.unit == Unit::Word;
        EXPECT_EQ(is_text, column.type == CellType::Text);
        if (!column.words.empty())
            EXPECT_EQ(column.unit, Unit::Word);
    });
}

TEST(Rows, NullHasAMeaning) {
    for_each_column([](const ColumnInfo &column) {
        EXPECT_EQ(column.meaning.find("null") != std::string_view::npos, column.is_nullable)
            << column.meaning;
    });
}

TEST(Rows, ColumnsCoverTheirRow) {
    for (const TableInfo *table : all_tables()) {
        std::size_t end = 0;
        std::size_t most_aligned = 1;
        for (const ColumnInfo &column : table->columns) {
            end = (end + column.align_bytes - 1) / column.align_bytes * column.align_bytes;
            EXPECT_EQ(column.offset_bytes, end) << table->name << "." << column.name;
            end += column.size_bytes;
            most_aligned = std::max(most_aligned, column.align_bytes);
        }
        EXPECT_EQ((end + most_aligned - 1) / most_aligned * most_aligned, table->row_bytes)
            << table->name << " has a member without a column";
    }
}

class Collector : public RowSink {
public:
    void put_cells(const TableInfo &table, std::span<const Cell> cells) override {
        EXPECT_EQ(table.name, "samples");
        cells_.assign(cells.begin(), cells.end());
    }
    std::vector<Cell> cells_;
};

TEST(Rows, CellsAreTheMembersInOrder) {
    Collector sink;
    // The cells' texts are the row's.
    const SampleRow row{
        .count = 7, .rank = -2, .host = "node0", .name = std::nullopt, .is_large = true};
    put(sink, row);
    ASSERT_EQ(sink.cells_.size(), 5U);
    EXPECT_EQ(std::get<std::uint64_t>(sink.cells_[0]), 7U);
    EXPECT_EQ(std::get<std::int64_t>(sink.cells_[1]), -2);
    EXPECT_EQ(std::get<std::string_view>(sink.cells_[2]), "node0");
    EXPECT_TRUE(std::holds_alternative<std::monostate>(sink.cells_[3]));
    EXPECT_EQ(std::get<std::uint64_t>(sink.cells_[4]), 1U);
}

TEST(Rows, TypesAndNullsBecomeSql) {
    EXPECT_EQ(sqlite::create_table(TABLE_INFO<SampleRow>),
              "CREATE TABLE \"samples\" (\n  \"count\" INTEGER NOT NULL,\n  \"rank\" INTEGER,\n"
              "  \"host\" TEXT NOT NULL,\n  \"name\" TEXT,\n"
              "  \"is_large\" INTEGER NOT NULL CHECK (\"is_large\" IN (0, 1)))");
    EXPECT_EQ(sqlite::insert_into(TABLE_INFO<SampleRow>),
              "INSERT INTO \"samples\" VALUES (?, ?, ?, ?, ?)");
}

void expect_file(const std::string &name, const std::string &text) {
    const std::string path = std::string(COLLWIRE_DOCS_DIR) + "/" + name;
    if (std::getenv("COLLWIRE_UPDATE_ROWS") != nullptr) {
        std::ofstream(path, std::ios::binary) << text;
        return;
    }
    std::ifstream file(path, std::ios::binary);
    std::ostringstream there;
    there << file.rdbuf();
    EXPECT_EQ(text, there.str()) << path
                                 << " differs from the declarations. Fix: see the head of this "
                                    "test";
}

TEST(Rows, DocumentsAreUpToDate) {
    expect_file("rows.md", sqlite::rows_document());
    expect_file("rows.schema.json", sqlite::rows_schema());
}

} // namespace
} // namespace collwire::rows
