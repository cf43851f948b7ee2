// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/comm_name.h"

#include <algorithm>
#include <cstddef>

#include "base/utf8.h"
#include "collwire/record.h"

namespace collwire::nccl {

namespace {

constexpr std::size_t LONGEST_CHARACTER = 4;

// A record has limited room: the last character may be cut.
std::string_view without_cut_character(std::string_view text) {
    if (text.size() + 1 < CW_NAME_BYTES)
        return text;
    for (std::size_t n = 1; n < LONGEST_CHARACTER && n <= text.size(); ++n) {
        const auto byte = static_cast<unsigned char>(text[text.size() - n]);
        if (byte >= 0xc2 && byte <= 0xf4) // begins one
            return utf8_sequence_length(text.substr(text.size() - n)) == 0
                       ? text.substr(0, text.size() - n)
                       : text;
        if (byte < 0x80)
            break;
    }
    return text;
}

bool is_printable(std::string_view text) {
    while (!text.empty()) {
        const std::size_t length = utf8_sequence_length(text);
        if (length == 0)
            return false;
        const auto first = static_cast<unsigned char>(text[0]);
        const bool is_c1 =
            length == 2 && first == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0;
        if (first < 0x20 || first == 0x7f || is_c1)
            return false;
        text.remove_prefix(length);
    }
    return true;
}

} // namespace

std::string agreed_name(std::span<const ReadName> names) {
    const bool has_better = std::ranges::any_of(
        names, [](const ReadName &name) { return name.at_creation && !name.text.empty(); });
    std::string_view agreed;
    for (const ReadName &name : names) {
        if (name.text.empty() || (has_better && !name.at_creation))
            continue;
        const std::string_view text = without_cut_character(name.text);
        if (!is_printable(text) || (!agreed.empty() && text != agreed))
            return {};
        agreed = text;
    }
    return std::string(agreed);
}

} // namespace collwire::nccl
