// SPDX-License-Identifier: Apache-2.0
// Parses durations and sizes of command lines.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace collwire {

// "90", "90s", "1.5h", "500ms", "30m", "2d" -> nanoseconds; a bare number means seconds.
// Usage error for anything else, negative values and overflow.
Result<std::uint64_t> parse_duration_ns(std::string_view text);

// "4096", "64KiB", "2GiB", "500MB" -> bytes; KB, MB, GB, TB are powers of 1000.
// Usage error for anything else, negative values and overflow.
Result<std::uint64_t> parse_size_bytes(std::string_view text);

} // namespace collwire
