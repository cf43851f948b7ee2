// SPDX-License-Identifier: Apache-2.0
// The declaration of a row type, from which all sinks work: a name, a unit and a meaning for each
// column. A column may be null where its member is a std::optional: the value is not known.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <variant>

namespace collwire::rows {

enum class Unit : std::uint8_t {
    Text,
    Word,   // one of few texts
    Flag,   // 0 or 1
    Number, // names something: a rank, a port, a process
    Count,
    Bytes,
    Nanoseconds,
    Realtime, // nanoseconds since 1970, by the clock of the row's host
    Common,   // likewise, corrected by the differences of clocks that connections show
    Microseconds,
    MegabitsPerSecond,
};
[[nodiscard]] std::string_view unit_name(Unit unit); // "B", "ns", ...

enum class CellType : std::uint8_t { Integer, Text };

// A value on its way to a sink; texts are the row's. monostate: null.
using Cell = std::variant<std::monostate, std::uint64_t, std::int64_t, std::string_view>;

// The words of an enumeration, by its values from 0 on: a specialisation has `words`.
template <typename E> struct Vocabulary;

template <typename T> struct ValueOf {
    using Type = T;
    static constexpr bool IS_NULLABLE = false;
};
template <typename T> struct ValueOf<std::optional<T>> {
    using Type = T;
    static constexpr bool IS_NULLABLE = true;
};

template <typename Row, typename Member> struct Column {
    std::string_view name;
    Unit unit;
    std::string_view meaning;
    Member Row::*member;
    std::size_t offset_bytes;
};

template <typename Row, typename Member>
constexpr Column<Row, Member> make_column(std::string_view name, Unit unit,
                                          std::string_view meaning, Member Row::*member,
                                          std::size_t offset_bytes) {
    return {name, unit, meaning, member, offset_bytes};
}

// A column with the name of its member.
#define COLUMN(row, member, unit, meaning)                                                         \
    ::collwire::rows::make_column(#member, ::collwire::rows::Unit::unit, meaning, &row::member,    \
                                  offsetof(row, member))

// The outputs that have rows of a type.
enum class Scope : std::uint8_t {
    Report,
    Detail,   // of a report, if it was asked for
    Intervals // of `collwire report --every`
};

// Of a row type: TABLE (its name), MEANING, COLUMNS (a tuple), SCOPE.
template <typename Row> struct Declaration;

struct ColumnInfo {
    std::string_view name;
    Unit unit = Unit::Text;
    std::string_view meaning;
    CellType type = CellType::Text;
    bool is_nullable = false;
    std::span<const std::string_view> words; // empty: any value
    // Of its member in the row, for the check that columns cover the row.
    std::size_t offset_bytes = 0;
    std::size_t size_bytes = 0;
    std::size_t align_bytes = 0;
};

struct TableInfo {
    std::string_view name;
    std::string_view meaning;
    Scope scope = Scope::Report;
    std::span<const ColumnInfo> columns;
    std::size_t row_bytes = 0;
};

template <typename Row, typename Member>
constexpr ColumnInfo info_of(const Column<Row, Member> &column) {
    using Value = typename ValueOf<Member>::Type;
    ColumnInfo info;
    info.name = column.name;
    info.unit = column.unit;
    info.meaning = column.meaning;
    info.is_nullable = ValueOf<Member>::IS_NULLABLE;
    info.offset_bytes = column.offset_bytes;
    info.size_bytes = sizeof(Member);
    info.align_bytes = alignof(Member);
    if constexpr (std::is_enum_v<Value>)
        info.words = Vocabulary<Value>::words;
    else if constexpr (std::is_integral_v<Value>)
        info.type = CellType::Integer;
    else
        static_assert(std::is_same_v<Value, std::string>);
    return info;
}

template <typename Row>
inline constexpr auto COLUMN_INFOS =
    std::apply([](const auto &...columns) { return std::array{info_of(columns)...}; },
               Declaration<Row>::COLUMNS);

template <typename Row>
inline constexpr TableInfo TABLE_INFO{.name = Declaration<Row>::TABLE,
                                      .meaning = Declaration<Row>::MEANING,
                                      .scope = Declaration<Row>::SCOPE,
                                      .columns = COLUMN_INFOS<Row>,
                                      .row_bytes = sizeof(Row)};

template <typename T> Cell cell_of(const T &value) {
    if constexpr (std::is_enum_v<T>)
        return Vocabulary<T>::words[static_cast<std::size_t>(value)];
    else if constexpr (std::is_same_v<T, std::string>)
        return std::string_view(value);
    else if constexpr (std::is_signed_v<T>)
        return std::int64_t{value};
    else
        return std::uint64_t{value};
}
template <typename T> Cell cell_of(const std::optional<T> &value) {
    return value ? cell_of(*value) : Cell();
}

} // namespace collwire::rows
