// SPDX-License-Identifier: Apache-2.0
// Text into a record's field.
#pragma once

#include <cstddef>
#include <cstring>
#include <string_view>

namespace collwire {

// As much of it as there is room for before a zero; zeroes up to the field's end.
template <std::size_t N> void set_text(char (&field)[N], std::string_view text) {
    std::memset(field, 0, N);
    text.copy(field, N - 1); // unlike memcpy(), it takes an empty text from nowhere
}

} // namespace collwire
