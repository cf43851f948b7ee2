// SPDX-License-Identifier: Apache-2.0
#include "base/foreign_text.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <fmt/format.h>

#include "base/utf8.h"

namespace collwire {
namespace {

constexpr std::uint32_t DELETE = 0x7f;
constexpr std::uint32_t LAST_C1 = 0x9f;

std::uint32_t code_point(std::string_view sequence) {
    const auto lead = static_cast<unsigned char>(sequence[0]);
    if (sequence.size() == 1)
        return lead;
    std::uint32_t value = lead & (0xffU >> (sequence.size() + 1));
    for (const char byte : sequence.substr(1))
        value = value << 6U | (static_cast<unsigned char>(byte) & 0x3fU);
    return value;
}

bool is_hostile(std::uint32_t character) {
    return character < ' ' || (character >= DELETE && character <= LAST_C1) ||
           character == 0x200e || character == 0x200f ||
           (character >= 0x2028 && character <= 0x202e) ||
           (character >= 0x2066 && character <= 0x2069);
}

std::string escape(std::string_view text, bool keeps_lines) {
    std::string safe;
    safe.reserve(text.size());
    while (!text.empty()) {
        const std::size_t length = utf8_sequence_length(text);
        const std::string_view sequence = text.substr(0, length == 0 ? 1 : length);
        const bool is_kept_line = keeps_lines && sequence == "\n";
        if (!is_kept_line && (length == 0 || is_hostile(code_point(sequence))))
            for (const char byte : sequence)
                safe += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
        else
            safe += sequence;
        text.remove_prefix(sequence.size());
    }
    return safe;
}

} // namespace

std::string escaped(std::string_view text) {
    return escape(text, false);
}

std::string escaped_lines(std::string_view text) {
    return escape(text, true);
}

std::string escaped_json(std::string_view document) {
    std::string safe;
    safe.reserve(document.size());
    while (!document.empty()) {
        const auto plain = static_cast<std::size_t>(
            std::ranges::find_if(
                document, [](char byte) { return static_cast<unsigned char>(byte) >= DELETE; }) -
            document.begin());
        safe.append(document.substr(0, plain));
        document.remove_prefix(plain);
        if (document.empty())
            break;
        const std::size_t length = utf8_sequence_length(document);
        const std::string_view sequence = document.substr(0, length == 0 ? 1 : length);
        // Below it only line ends and blanks of the layout are there unescaped.
        if (length == 0)
            safe += "\\ufffd";
        else if (const std::uint32_t character = code_point(sequence);
                 character >= DELETE && is_hostile(character))
            safe += fmt::format("\\u{:04x}", character);
        else
            safe += sequence;
        document.remove_prefix(sequence.size());
    }
    return safe;
}

} // namespace collwire
