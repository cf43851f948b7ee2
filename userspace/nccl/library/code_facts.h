// SPDX-License-Identifier: Apache-2.0
// Facts that are read from the machine code of a few NCCL functions, without symbols or DWARF.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "userspace/nccl/library/library_file.h"

namespace collwire::nccl {

// The number that ncclGetVersion stores: 10,000 times the major version, 100 times the minor one.
std::optional<std::uint32_t> stored_number(const elf::CodeView &code,
                                           const LibrarySymbol &get_version);

// Whether a getter (ncclCommUserRank and the like) reads an int at this offset of a structure.
bool reads_int_at(const elf::CodeView &code, const LibrarySymbol &getter,
                  std::uint64_t offset_bytes);

// The offset of the int that a getter returns: loaded from a structure and stored through a
// pointer. Empty if there is no such offset, or more than one.
std::optional<std::uint64_t> int_handed_on(const elf::CodeView &code, const LibrarySymbol &getter);

// Whether a function adds to the value at this offset, in memory or through one register. A plain
// store does not count.
bool adds_at(const elf::CodeView &code, const LibrarySymbol &function, std::uint64_t offset_bytes);

// A direct call: its address and its callee.
struct DirectCall {
    std::uint64_t address = 0;
    std::uint64_t callee = 0;
};
std::vector<DirectCall> direct_calls(const elf::CodeView &code, const elf::CodeRange &function);

// Whether a function starts by reading a pointer at offset `first_bytes` of its first argument, and
// then the value at offset `second_bytes` of its target.
bool begins_with_reading(const elf::CodeView &code, const elf::CodeRange &function,
                         std::uint64_t first_bytes, std::uint64_t second_bytes);

// Whether a function compares the value at offset `offset_bytes` of a structure with this 64-bit
// number.
bool compares_at(const elf::CodeView &code, const elf::CodeRange &function, std::uint64_t number,
                 std::uint64_t offset_bytes);

// The callee-saved register that holds a function's second argument at this call, which gets the
// function's first argument. Empty if there is none, or if the register is written more than once.
std::string_view second_argument_at(const elf::CodeView &code, const elf::CodeRange &function,
                                    std::uint64_t call);

// The address that a function returns, computed by lea relative to its own address.
std::optional<std::uint64_t> returned_address(const elf::CodeView &code,
                                              const LibrarySymbol &function);

} // namespace collwire::nccl
