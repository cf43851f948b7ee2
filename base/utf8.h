// SPDX-License-Identifier: Apache-2.0
// Finds valid UTF-8 in foreign text.
#pragma once

#include <cstddef>
#include <string_view>

namespace collwire {

// The length of the UTF-8 sequence at the start of `text`, which is not empty. 0: the bytes are not
// UTF-8.
inline std::size_t utf8_sequence_length(std::string_view text) {
    const auto lead = static_cast<unsigned char>(text[0]);
    std::size_t length = 0;
    if (lead >= 0xc2 && lead <= 0xdf)
        length = 2;
    else if (lead >= 0xe0 && lead <= 0xef)
        length = 3;
    else if (lead >= 0xf0 && lead <= 0xf4)
        length = 4;
    else
        return lead < 0x80 ? 1 : 0;
    if (text.size() < length)
        return 0;
    for (std::size_t i = 1; i < length; i++) {
        if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80)
            return 0;
    }
    const auto second = static_cast<unsigned char>(text[1]);
    const bool overlong = (lead == 0xe0 && second < 0xa0) || (lead == 0xf0 && second < 0x90);
    const bool no_character = (lead == 0xed && second > 0x9f) || (lead == 0xf4 && second > 0x8f);
    return overlong || no_character ? 0 : length;
}

} // namespace collwire
