// SPDX-License-Identifier: Apache-2.0
// Text into a record's field.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>

namespace collwire {

// As much of it as there is room for before a zero; zeroes up to the field's end.
template <std::size_t N> void put(char (&field)[N], std::string_view text) {
    const std::size_t n = std::min(text.size(), N - 1);
    std::memcpy(field, text.data(), n);
    std::memset(field + n, 0, N - n);
}

} // namespace collwire
