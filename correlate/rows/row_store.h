// SPDX-License-Identifier: Apache-2.0
// A sink that keeps rows of some types as values. Other rows are passed over.
#pragma once

#include <algorithm>
#include <tuple>
#include <vector>

#include "correlate/rows/row_sink.h"

namespace collwire::rows {

template <typename T> void set_from(const Cell &cell, T &value) {
    if constexpr (ValueOf<T>::IS_NULLABLE) {
        if (std::holds_alternative<std::monostate>(cell))
            return value.reset();
        set_from(cell, value.emplace());
    } else if constexpr (std::is_enum_v<T>) {
        const auto &words = Vocabulary<T>::words;
        value =
            static_cast<T>(std::find(words.begin(), words.end(), std::get<std::string_view>(cell)) -
                           words.begin());
    } else if constexpr (std::is_same_v<T, std::string>) {
        value = std::get<std::string_view>(cell);
    } else if constexpr (std::is_signed_v<T>) {
        value = static_cast<T>(std::get<std::int64_t>(cell));
    } else {
        value = static_cast<T>(std::get<std::uint64_t>(cell));
    }
}

// `cells` as put() made them.
template <typename Row> Row row_from(std::span<const Cell> cells) {
    Row row;
    std::apply(
        [&, place = std::size_t{0}](const auto &...columns) mutable {
            (set_from(cells[place++], row.*columns.member), ...);
        },
        Declaration<Row>::COLUMNS);
    return row;
}

template <typename... Rows> class RowStore : public RowSink {
public:
    void put_cells(const TableInfo &table, std::span<const Cell> cells) override {
        (keep<Rows>(table, cells), ...);
    }
    template <typename Row> [[nodiscard]] const std::vector<Row> &of() const {
        return std::get<std::vector<Row>>(rows_);
    }

private:
    template <typename Row> void keep(const TableInfo &table, std::span<const Cell> cells) {
        if (&table == &TABLE_INFO<Row>)
            std::get<std::vector<Row>>(rows_).push_back(row_from<Row>(cells));
    }

    std::tuple<std::vector<Rows>...> rows_;
};

} // namespace collwire::rows
