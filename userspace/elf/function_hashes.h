// SPDX-License-Identifier: Apache-2.0
// What the functions of a file are, without where the linker put them and their data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "userspace/elf/code_view.h"
#include "userspace/elf/probe_point.h"

namespace collwire::elf {

struct FunctionHashes {
    // A function each, in order: the first 4 bytes of the SHA-256 of its code. Distances to other
    // functions and to data count as 0; the targets of its jump tables count as offsets in it.
    std::vector<std::uint32_t> each;
    // SHA-256 of the whole: of each function the code as above, and what each distance leads to.
    // That is a function, by its number, and an offset in it; or data, by the order in which the
    // code refers to it. So two files with the same digest have the same code, and one address of
    // data in the first is one address in the second. Empty: too many jump tables.
    std::string digest;
};

// Called for each instruction with an operand relative to its own address: the function's number,
// the instruction's offset in it, and the address that the operand means.
using OnReference =
    std::function<void(std::size_t function, std::uint64_t offset_bytes, std::uint64_t address)>;

// `functions`: see frame_functions(). About a second of CPU time for 2 MiB of code.
FunctionHashes hash_functions(const CodeView &code, std::span<const CodeRange> functions,
                              const OnReference &on_reference = {});

// The address that the instruction at `at` refers to, relative to its own address.
std::optional<std::uint64_t> referenced_address(const CodeView &code, std::uint64_t at);

} // namespace collwire::elf
