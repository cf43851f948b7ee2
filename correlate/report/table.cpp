// SPDX-License-Identifier: Apache-2.0
#include "correlate/report/table.h"

#include <algorithm>

namespace collwire::report {

namespace {

constexpr std::size_t GAP = 2;
constexpr std::size_t LEAST_FLEXIBLE = 12;

std::string fitted(std::string_view text, std::size_t width, Align align) {
    std::string cell(text);
    if (cell.size() > width)
        cell = width > 2 ? cell.substr(0, width - 2) + ".." : cell.substr(0, width);
    const std::string padding(width - cell.size(), ' ');
    return align == Align::Right ? padding + cell : cell + padding;
}

} // namespace

std::string Table::text(std::size_t width) const {
    std::vector<std::size_t> widths(columns_.size());
    for (std::size_t i = 0; i < columns_.size(); ++i) {
        widths[i] = columns_[i].title.size();
        for (const auto &row : rows_)
            widths[i] = std::max(widths[i], row[i].size());
    }
    std::vector<bool> shown(columns_.size());
    for (std::size_t i = 0; i < columns_.size(); ++i)
        shown[i] = columns_[i].is_wanted;
    const auto total = [&] {
        std::size_t sum = 0;
        for (std::size_t i = 0; i < columns_.size(); ++i)
            sum += shown[i] ? widths[i] + GAP : 0;
        return sum;
    };
    for (std::size_t i = 0; i < columns_.size(); ++i)
        if (columns_[i].flexible && total() > width)
            widths[i] = std::max(std::min(widths[i], LEAST_FLEXIBLE),
                                 widths[i] - std::min(widths[i], total() - width));
    while (total() > width) {
        std::size_t victim = columns_.size();
        for (std::size_t i = 0; i < columns_.size(); ++i)
            if (shown[i] && columns_[i].drop_order != 0 &&
                (victim == columns_.size() || columns_[i].drop_order > columns_[victim].drop_order))
                victim = i;
        if (victim == columns_.size())
            break;
        shown[victim] = false;
    }

    std::string text;
    const auto add_line = [&](const auto &cell_of) {
        std::string line;
        for (std::size_t i = 0; i < columns_.size(); ++i)
            if (shown[i])
                line += std::string(GAP, ' ') + fitted(cell_of(i), widths[i], columns_[i].align);
        line.erase(line.find_last_not_of(' ') + 1);
        text += line + '\n';
    };
    add_line([&](std::size_t i) -> const std::string & { return columns_[i].title; });
    for (const auto &row : rows_)
        add_line([&](std::size_t i) -> const std::string & { return row[i]; });
    return text;
}

} // namespace collwire::report
