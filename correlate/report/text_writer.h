// SPDX-License-Identifier: Apache-2.0
// Lines, titles and wrapped sentences of the text report.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "correlate/report/text_report.h"

namespace collwire::report {

class TextWriter {
public:
    explicit TextWriter(const TextOptions &options);

protected:
    void line(std::string_view text);
    void title(std::string_view text);
    // A line of the header.
    void field(std::string_view text) { wrapped(text, "                 ", ""); }
    // States how many rows are left out.
    void more(std::size_t all, std::size_t shown, std::string_view what);
    [[nodiscard]] std::string colored(std::string_view text, std::string_view code) const;
    // Wraps `text` at the width; further lines are indented.
    void wrapped(std::string_view text, std::string_view indent, std::string_view color);

    const TextOptions &options_;
    const std::size_t width_;
    std::string text_;
};

} // namespace collwire::report
