// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace collwire::capture {

// CRC-32C (Castagnoli polynomial 0x1EDC6F41, reflected, as in RFC 3720 appendix B.4). To checksum
// several pieces, pass the result of one piece as `previous` of the next.
[[nodiscard]] std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t previous = 0);

} // namespace collwire::capture
