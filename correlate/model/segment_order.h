// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>

namespace collwire::model {

// Sorting captures by this value puts the segments of each recording in order.
struct SegmentOrder {
    std::uint64_t session_id = 0;
    std::uint32_t segment = 0;
    friend auto operator<=>(const SegmentOrder &, const SegmentOrder &) = default;
};

// The bytes of the file that segment_order needs: its header and its first block. `first_bytes`
// holds at least FIRST_BYTES of it, or all of a shorter file.
inline constexpr std::size_t FIRST_BYTES = 80;
[[nodiscard]] std::size_t bytes_for_order(std::span<const std::byte> first_bytes);
// All zero if the file does not start with its node's record.
[[nodiscard]] SegmentOrder segment_order(std::span<const std::byte> beginning);

} // namespace collwire::model
