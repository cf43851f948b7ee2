// SPDX-License-Identifier: Apache-2.0
// Captures in memory, as streams read them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "correlate/stream/record_stream.h"
#include "tests/support/capture_builder.h"

namespace collwire::test {

inline stream::ReadAt reader_of(std::vector<std::byte> file) {
    return [file = std::move(file)](std::uint64_t offset_bytes,
                                    std::span<std::byte> into) -> Result<std::size_t> {
        const std::size_t from = std::min<std::size_t>(offset_bytes, file.size());
        const std::size_t n = std::min(into.size(), file.size() - from);
        std::copy_n(file.begin() + static_cast<std::ptrdiff_t>(from), n, into.begin());
        return n;
    };
}

} // namespace collwire::test
