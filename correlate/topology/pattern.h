// SPDX-License-Identifier: Apache-2.0
// Patterns: one entry of a topology file that expands to many. Rules and examples:
// docs/topology.md, "Patterns".
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace collwire::topology {

// A list of numbers such as "1-4,7". Positions count from 0 in the order of the list.
class Axis {
public:
    static Result<Axis> parse(std::string name, std::string_view spec);

    [[nodiscard]] const std::string &name() const { return name_; }
    [[nodiscard]] std::uint64_t count() const { return count_; }
    [[nodiscard]] unsigned width() const {
        return width_;
    } // digits, when the first number has leading zeros
    [[nodiscard]] std::uint64_t at(std::uint64_t position) const;

private:
    struct Range {
        std::uint64_t first, last;
    };
    std::string name_;
    std::vector<Range> ranges_;
    std::uint64_t count_ = 0;
    unsigned width_ = 0;
};

// The axes of one entry and their computed variables.
class Variables {
public:
    static constexpr std::size_t AXES_MAX = 8;

    Result<void> add_axis(std::string name, std::string_view spec);
    // start + position / by, or start + position % by, of the axis `of`.
    Result<void> add_computed(std::string name, std::string_view of, bool divide, std::uint64_t by,
                              std::uint64_t start);

    [[nodiscard]] std::optional<std::size_t> find(std::string_view name) const;
    [[nodiscard]] const std::vector<Axis> &axes() const { return axes_; }
    [[nodiscard]] std::size_t axis_of(std::size_t variable) const {
        return variables_[variable].axis;
    }
    [[nodiscard]] std::uint64_t value(std::size_t variable,
                                      std::span<const std::uint64_t> positions) const;

private:
    enum class Rule { Value, Divide, Remainder };
    struct Variable {
        std::string name;
        std::size_t axis = 0;
        Rule rule = Rule::Value;
        std::uint64_t by = 1;
        std::uint64_t start = 0;
    };
    Result<void> check_name(std::string_view name) const;

    std::vector<Axis> axes_;
    std::vector<Variable> variables_;
};

// A field's text with its {variables}.
class Template {
public:
    // Adds the range in the brackets of `text`, if there is one, to `variables` as the axis `name`.
    static Result<void> add_brackets(std::string_view text, std::string_view name,
                                     Variables &variables);

    // A bracket stands for the variable `bracket_variable`; if that is empty brackets are plain
    // text.
    static Result<Template> compile(std::string_view text, std::string_view bracket_variable,
                                    const Variables &variables);

    [[nodiscard]] std::string render(const Variables &variables,
                                     std::span<const std::uint64_t> positions) const;
    [[nodiscard]] std::uint32_t axes() const { return axes_; } // bit i: axis i takes part
    [[nodiscard]] bool empty() const { return pieces_.empty(); }

private:
    struct Piece {
        std::string text; // literal, when there is no variable
        std::optional<std::size_t> variable;
        unsigned width = 0;
    };
    void add_literal(char c);
    Result<std::size_t> add_variable(std::string_view text, std::size_t open,
                                     const Variables &variables);
    std::vector<Piece> pieces_;
    std::uint32_t axes_ = 0;
};

// The product of the counts of the axes in `mask`, or `cap` + 1 if it is more than `cap`.
std::uint64_t combinations(const Variables &variables, std::uint32_t mask, std::uint64_t cap);

// Counts `positions` up, the last axis of `mask` fastest; false after the last combination.
bool next_combination(const Variables &variables, std::uint32_t mask,
                      std::span<std::uint64_t> positions);

} // namespace collwire::topology
