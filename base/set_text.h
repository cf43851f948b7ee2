// SPDX-License-Identifier: Apache-2.0
// Copies text into a field of a record.
#pragma once

#include <cstddef>
#include <cstring>
#include <string_view>

namespace collwire {

// Copies as much as fits before a terminating zero; zeroes up to the field's end.
template <std::size_t N> void set_text(char (&field)[N], std::string_view text) {
    std::memset(field, 0, N);
    text.copy(field, N - 1); // unlike memcpy(), takes an empty text at a null pointer
}

} // namespace collwire
