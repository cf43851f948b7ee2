// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace collwire::report {

enum class Align { Left, Right };

struct Column {
    std::string title;
    Align align = Align::Left;
    bool flexible = false; // shortened first if the table is too wide
    std::size_t drop_order =
        0; // if that is not enough, columns with the highest order are dropped; 0: never
    bool is_wanted = true; // else the column is left out
};

// Text in columns, two spaces apart. No line is longer than `width`, unless the columns that must
// stay are.
class Table {
public:
    explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

    void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
    [[nodiscard]] bool empty() const { return rows_.empty(); }
    // Every line begins with two spaces and ends with a newline.
    [[nodiscard]] std::string text(std::size_t width) const;

private:
    std::vector<Column> columns_;
    std::vector<std::vector<std::string>> rows_;
};

} // namespace collwire::report
