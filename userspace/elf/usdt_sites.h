// SPDX-License-Identifier: Apache-2.0
// The probe sites that a library describes in .note.stapsdt (USDT).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace collwire::elf {

// Addresses are those of the file, without load bias.
struct UsdtSite {
    std::uint64_t address = 0;
    std::uint64_t semaphore = 0; // address of a 16-bit count of tracers; 0: it has none
    std::string arguments;       // as the note has them: "8@%rdi"
};

// The sites of one provider, by their names; of several with one name, the first. `file` is a whole
// 64-bit little-endian ELF file. BadInput: it is none, or its section headers or notes are cut.
// Layout: SystemTap, "UserSpaceProbeImplementation", version 3.
Result<std::map<std::string, UsdtSite>> usdt_sites(std::span<const std::byte> file,
                                                   std::string_view provider);

} // namespace collwire::elf
