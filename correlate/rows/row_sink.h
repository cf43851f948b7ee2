// SPDX-License-Identifier: Apache-2.0
// Where rows go: a file, a table, a counter.
#pragma once

#include <span>
#include <tuple>

#include "correlate/rows/column.h"

namespace collwire::rows {

class RowSink {
public:
    RowSink() = default;
    RowSink(const RowSink &) = delete;
    RowSink &operator=(const RowSink &) = delete;
    virtual ~RowSink() = default;

    // The cells of one row, in the order of the table's columns; their texts live until it returns.
    virtual void put_cells(const TableInfo &table, std::span<const Cell> cells) = 0;
    // No more rows are needed: it failed, which the sink itself reports, or was interrupted.
    [[nodiscard]] virtual bool is_stopped() const { return false; }
};

template <typename Row> void put(RowSink &sink, const Row &row) {
    const auto cells = std::apply(
        [&](const auto &...columns) { return std::array{cell_of(row.*columns.member)...}; },
        Declaration<Row>::COLUMNS);
    sink.put_cells(TABLE_INFO<Row>, cells);
}

} // namespace collwire::rows
