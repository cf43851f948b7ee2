// SPDX-License-Identifier: Apache-2.0
// Operations and calls in the words of verdicts.
#pragma once

#include <cstdint>
#include <string>

namespace collwire::stall {

// "AllReduce of 4.00 MiB"; of an unknown datatype "of 3 elements".
[[nodiscard]] std::string call_text(std::uint8_t func, std::uint64_t count, std::uint8_t datatype);
// With all arguments that ranks of one operation must share.
[[nodiscard]] std::string variant_text(std::uint8_t func, std::uint64_t count,
                                       std::uint8_t datatype, std::int32_t root);

} // namespace collwire::stall
