// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "correlate/intervals/interval.h"

namespace collwire::intervals {

struct Recorded {
    std::uint64_t begin_ns = 0, end_ns = 0; // CLOCK_REALTIME, of what was asked for
    std::uint64_t every_ns = 0;
    std::string local; // both ends in local time
};

struct TextStyle {
    std::size_t width = 100;
    bool color = false;
};

// The lines of a text, one after the other, so that each can be printed when it is known.
class TextLines {
public:
    TextLines(const Recorded &recorded, const TextStyle &style)
        : recorded_(recorded), style_(style) {}

    [[nodiscard]] std::string head() const;
    [[nodiscard]] std::string line(const Interval &interval);
    [[nodiscard]] std::string end() const;

private:
    [[nodiscard]] std::string notes(const Interval &interval) const;

    Recorded recorded_;
    TextStyle style_;
    std::uint64_t day_ = 0; // of the line before
    std::uint64_t most_hosts_ = 0;
    std::uint64_t lost_records_ = 0;
    bool lacks_bytes_ = false;
};

// The parts of a JSON document, likewise. Rows are as in docs/rows.schema.json.
class JsonParts {
public:
    JsonParts(const Recorded &recorded, std::string_view tool_version)
        : recorded_(recorded), tool_version_(tool_version) {}

    [[nodiscard]] std::string head() const;
    [[nodiscard]] std::string part(const Interval &interval);
    [[nodiscard]] std::string end() const;

private:
    Recorded recorded_;
    std::string tool_version_;
    bool has_part_ = false;
    std::uint64_t lost_records_ = 0;
};

} // namespace collwire::intervals
