// SPDX-License-Identifier: Apache-2.0
#include "correlate/report/text_writer.h"

#include <fmt/format.h>

#include <algorithm>

#include "correlate/report/units.h"

namespace collwire::report {

namespace {
constexpr std::size_t LEAST_WIDTH = 40;
} // namespace

TextWriter::TextWriter(const TextOptions &options)
    : options_(options), width_(std::max(options.width, LEAST_WIDTH)) {}

void TextWriter::line(std::string_view text) {
    text_ += text;
    text_ += '\n';
}

void TextWriter::title(std::string_view text) {
    text_ += '\n';
    line(colored(text, "1"));
}

void TextWriter::more(std::size_t all, std::size_t shown, std::string_view what) {
    if (all > shown)
        line(fmt::format("  ... and {} more {}: see --json", grouped(all - shown), what));
}

std::string TextWriter::colored(std::string_view text, std::string_view code) const {
    return options_.color ? fmt::format("\033[{}m{}\033[0m", code, text) : std::string(text);
}

void TextWriter::wrapped(std::string_view text, std::string_view indent, std::string_view color) {
    std::string current;
    const auto flush = [&] {
        line(color.empty() ? current : colored(current, color));
        current = indent;
    };
    bool first_word = true;
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find(' ', begin), text.size());
        const std::string_view word = text.substr(begin, end - begin);
        if (!first_word && current.size() + 1 + word.size() > width_) {
            flush();
            first_word = true;
        }
        if (!first_word)
            current += ' ';
        current += word;
        first_word = false;
        begin = end + 1;
    }
    flush();
}

} // namespace collwire::report
