// SPDX-License-Identifier: Apache-2.0
#include "correlate/topology/pattern.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>

#include "correlate/topology/problems.h"

namespace collwire::topology {

namespace {

constexpr std::uint64_t NUMBER_MAX = 0x7fffffff;
constexpr std::size_t RANGES_MAX = 256;
constexpr unsigned WIDTH_MAX = 10;
// An entry is written out for each of up to a million ports.
constexpr std::size_t FIELD_BYTES_MAX = 4096;
constexpr std::size_t PIECES_MAX = 64;

Error bad(std::string message) {
    return error(ErrorKind::BadInput, std::move(message));
}

std::optional<std::uint64_t> parse_number(std::string_view text) {
    std::uint64_t value = 0;
    const auto end = text.data() + text.size();
    const auto [stop, failure] = std::from_chars(text.data(), end, value);
    if (text.empty() || failure != std::errc{} || stop != end || value > NUMBER_MAX)
        return std::nullopt;
    return value;
}

} // namespace

Result<Axis> Axis::parse(std::string name, std::string_view spec) {
    Axis axis;
    axis.name_ = std::move(name);
    const auto refuse = [&] {
        return bad(fmt::format("{} is not a list of numbers such as 1-4,7. Fix: write ranges "
                               "low-high, separated by commas, numbers up to {}",
                               quote(spec), NUMBER_MAX));
    };
    for (std::size_t begin = 0; begin <= spec.size();) {
        const std::size_t end = std::min(spec.find(',', begin), spec.size());
        const std::string_view part = spec.substr(begin, end - begin);
        const std::size_t dash = part.find('-');
        const std::string_view low = part.substr(0, dash);
        const auto first = parse_number(low);
        const auto last =
            dash == std::string_view::npos ? first : parse_number(part.substr(dash + 1));
        if (!first || !last || *last < *first || axis.ranges_.size() == RANGES_MAX)
            return refuse();
        if (axis.ranges_.empty() && low.size() > 1 && low[0] == '0') {
            if (low.size() > WIDTH_MAX)
                return refuse();
            axis.width_ = static_cast<unsigned>(low.size());
        }
        axis.ranges_.push_back({*first, *last});
        axis.count_ += *last - *first + 1;
        begin = end + 1;
    }
    return axis;
}

std::uint64_t Axis::at(std::uint64_t position) const {
    for (const auto &range : ranges_) {
        const std::uint64_t size = range.last - range.first + 1;
        if (position < size)
            return range.first + position;
        position -= size;
    }
    return 0;
}

Result<void> Variables::check_name(std::string_view name) const {
    const bool letters =
        !name.empty() && name.size() <= 32 && std::all_of(name.begin(), name.end(), [](char c) {
            return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        });
    if (!letters)
        return bad(
            fmt::format("{} is not a variable name. Fix: use letters and _ only", quote(name)));
    if (find(name))
        return bad(fmt::format(
            "variable {} is set twice. Fix: keep one (a bracket in \"host\" or \"id\" sets n, one "
            "in \"device\" sets i)",
            quote(name)));
    return {};
}

Result<void> Variables::add_axis(std::string name, std::string_view spec) {
    if (auto checked = check_name(name); !checked)
        return checked;
    if (axes_.size() == AXES_MAX)
        return bad(fmt::format("more than {} ranges in one entry. Fix: split the entry", AXES_MAX));
    auto axis = Axis::parse(name, spec);
    if (!axis)
        return std::move(axis).failure();
    variables_.push_back({std::move(name), axes_.size(), Rule::Value, 1, 0});
    axes_.push_back(*std::move(axis));
    return {};
}

Result<void> Variables::add_computed(std::string name, std::string_view of, bool divide,
                                     std::uint64_t by, std::uint64_t start) {
    if (auto checked = check_name(name); !checked)
        return checked;
    const auto base = find(of);
    if (!base || variables_[*base].rule != Rule::Value)
        return bad(fmt::format(
            "\"of\" names {}, which is not a range. Fix: name a range of this entry", quote(of)));
    if (by == 0 || by > NUMBER_MAX || start > NUMBER_MAX)
        return bad(fmt::format("numbers go from 1 (start: 0) to {}", NUMBER_MAX));
    if (variables_.size() >= 4 * AXES_MAX)
        return bad("too many variables. Fix: split the entry");
    variables_.push_back({std::move(name), variables_[*base].axis,
                          divide ? Rule::Divide : Rule::Remainder, by, start});
    return {};
}

std::optional<std::size_t> Variables::find(std::string_view name) const {
    for (std::size_t i = 0; i < variables_.size(); i++) {
        if (variables_[i].name == name)
            return i;
    }
    return std::nullopt;
}

std::uint64_t Variables::value(std::size_t variable,
                               std::span<const std::uint64_t> positions) const {
    const Variable &one = variables_[variable];
    const std::uint64_t position = positions[one.axis];
    switch (one.rule) {
    case Rule::Divide:
        return one.start + position / one.by;
    case Rule::Remainder:
        return one.start + position % one.by;
    case Rule::Value:
        break;
    }
    return axes_[one.axis].at(position);
}

void Template::add_literal(char c) {
    if (pieces_.empty() || pieces_.back().variable)
        pieces_.emplace_back();
    pieces_.back().text += c;
}

// {name} or {name:03}; returns the place after the closing brace.
Result<std::size_t> Template::add_variable(std::string_view text, std::size_t open,
                                           const Variables &variables) {
    const std::size_t close = text.find('}', open);
    if (close == std::string_view::npos)
        return bad(
            fmt::format("{}: '{{' without '}}'. Fix: close it, or write '{{{{' for a plain brace",
                        quote(text)));
    std::string_view inside = text.substr(open + 1, close - open - 1);
    Piece piece;
    const std::size_t colon = inside.find(':');
    if (colon != std::string_view::npos) {
        const std::string_view format = inside.substr(colon + 1);
        const auto width = parse_number(format);
        if (format.size() < 2 || format[0] != '0' || !width || *width == 0 || *width > WIDTH_MAX)
            return bad(fmt::format("{}: {} is not a width. Fix: write 01 to 010, such as {{n:03}}",
                                   quote(text), quote(format)));
        piece.width = static_cast<unsigned>(*width);
        inside = inside.substr(0, colon);
    }
    piece.variable = variables.find(inside);
    if (!piece.variable)
        return bad(fmt::format(
            "{}: variable {} is not set. Fix: set it in \"vars\", or by a range in brackets in "
            "\"host\" (n), \"device\" (i) or a switch's \"id\" (n)",
            quote(text), quote(inside)));
    axes_ |= 1U << variables.axis_of(*piece.variable);
    pieces_.push_back(std::move(piece));
    return close + 1;
}

Result<void> Template::add_brackets(std::string_view text, std::string_view name,
                                    Variables &variables) {
    for (std::size_t i = 0; i < text.size(); i++) {
        if (text[i] != '[')
            continue;
        if (i + 1 < text.size() && text[i + 1] == '[') {
            i++;
            continue;
        }
        const std::size_t close = text.find(']', i);
        if (close == std::string_view::npos)
            return bad(
                fmt::format("{}: '[' without ']'. Fix: close it, or write '[[' for a plain bracket",
                            quote(text)));
        if (auto added = variables.add_axis(std::string(name), text.substr(i + 1, close - i - 1));
            !added)
            return added;
        i = close;
    }
    return {};
}

Result<Template> Template::compile(std::string_view text, std::string_view bracket_variable,
                                   const Variables &variables) {
    Template compiled;
    if (text.size() > FIELD_BYTES_MAX)
        return bad(fmt::format("{} has {} bytes, at most {} are allowed. Fix: use a shorter name",
                               quote(text), text.size(), FIELD_BYTES_MAX));
    for (std::size_t i = 0; i < text.size();) {
        const char c = text[i];
        const bool doubled = i + 1 < text.size() && text[i + 1] == c;
        const bool bracket = c == '[' && !bracket_variable.empty();
        if (doubled && (c == '{' || c == '}' || bracket)) {
            compiled.add_literal(c);
            i += 2;
        } else if (c == '{') {
            auto next = compiled.add_variable(text, i, variables);
            if (!next)
                return std::move(next).failure();
            i = *next;
        } else if (bracket) {
            Piece piece;
            piece.variable = variables.find(bracket_variable);
            if (!piece.variable)
                return bad(fmt::format("{}: a range in brackets is not allowed here", quote(text)));
            const std::size_t axis = variables.axis_of(*piece.variable);
            piece.width = variables.axes()[axis].width();
            compiled.axes_ |= 1U << axis;
            compiled.pieces_.push_back(std::move(piece));
            i = std::min(text.find(']', i), text.size() - 1) + 1;
        } else {
            compiled.add_literal(c);
            i++;
        }
    }
    if (compiled.pieces_.size() > PIECES_MAX)
        return bad(fmt::format("{}: more than {} variables and texts between them. Fix: use a "
                               "shorter name",
                               quote(text), PIECES_MAX));
    return compiled;
}

std::string Template::render(const Variables &variables,
                             std::span<const std::uint64_t> positions) const {
    std::string text;
    for (const auto &piece : pieces_) {
        if (piece.variable)
            text += fmt::format("{:0{}}", variables.value(*piece.variable, positions), piece.width);
        else
            text += piece.text;
    }
    return text;
}

std::uint64_t combinations(const Variables &variables, std::uint32_t mask, std::uint64_t cap) {
    std::uint64_t product = 1;
    for (std::size_t i = 0; i < variables.axes().size(); i++) {
        if ((mask >> i & 1) == 0)
            continue;
        const std::uint64_t count = variables.axes()[i].count();
        if (count > cap / product)
            return cap + 1;
        product *= count;
    }
    return product;
}

bool next_combination(const Variables &variables, std::uint32_t mask,
                      std::span<std::uint64_t> positions) {
    for (std::size_t i = variables.axes().size(); i-- > 0;) {
        if ((mask >> i & 1) == 0)
            continue;
        if (++positions[i] < variables.axes()[i].count())
            return true;
        positions[i] = 0;
    }
    return false;
}

} // namespace collwire::topology
