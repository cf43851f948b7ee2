// SPDX-License-Identifier: Apache-2.0
// The functions that a shared library exports.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "base/result.h"

namespace collwire::elf {

// From the dynamic symbols of a 64-bit little-endian file: name, without its version, and address
// without load bias. Of several versions the first counts; indirect functions (IFUNC) are left out.
// BadInput: no such file, or it is damaged.
Result<std::map<std::string, std::uint64_t>> exported_functions(std::span<const std::byte> file);

} // namespace collwire::elf
