// SPDX-License-Identifier: Apache-2.0
// What a few of NCCL's functions say by their machine code, whatever the symbols and DWARF say.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "userspace/nccl/library/library_file.h"

namespace collwire::nccl {

// The number that ncclGetVersion stores: 10,000 times the major version, 100 times the minor one.
std::optional<std::uint32_t> stored_number(const CodeView &code, const LibrarySymbol &get_version);

// Whether a getter (ncclCommUserRank and the like) reads an int at this offset of a structure.
bool reads_int_at(const CodeView &code, const LibrarySymbol &getter, std::uint64_t offset_bytes);

// The offset of the int that a getter hands on: loaded from a structure, and stored where a pointer
// points to. Nothing if there is none, or if it is not one alone.
std::optional<std::uint64_t> int_handed_on(const CodeView &code, const LibrarySymbol &getter);

// Whether a function adds to what it keeps at this offset, in memory or by loading and storing
// through one register; not so if it only stores there.
bool adds_at(const CodeView &code, const LibrarySymbol &function, std::uint64_t offset_bytes);

// A direct call: where it is, and of what.
struct DirectCall {
    std::uint64_t address = 0;
    std::uint64_t callee = 0;
};
std::vector<DirectCall> direct_calls(const CodeView &code, const CodeRange &function);

// Whether a function begins with reading a pointer at `first_bytes` of its first argument, and what
// is at `second_bytes` behind that.
bool begins_with_reading(const CodeView &code, const CodeRange &function, std::uint64_t first_bytes,
                         std::uint64_t second_bytes);

// Whether a function compares what is at `offset_bytes` of something with this number of 64 bits.
bool compares_at(const CodeView &code, const CodeRange &function, std::uint64_t number,
                 std::uint64_t offset_bytes);

// The register in which a function has its second argument when it makes this call, to which it
// hands on its first: one that calls leave alone, which is written to once. Empty: none.
std::string_view second_argument_at(const CodeView &code, const CodeRange &function,
                                    std::uint64_t call);

// The address that a function returns and computes from its own (lea).
std::optional<std::uint64_t> returned_address(const CodeView &code, const LibrarySymbol &function);

} // namespace collwire::nccl
