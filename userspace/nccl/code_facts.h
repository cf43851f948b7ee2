// SPDX-License-Identifier: Apache-2.0
// What a few of NCCL's functions say by their machine code, whatever the symbols and DWARF say.
#pragma once

#include <cstdint>
#include <optional>

#include "userspace/nccl/library_file.h"

namespace collwire::nccl {

// The number that ncclGetVersion stores: 10,000 times the major version, 100 times the minor one.
std::optional<std::uint32_t> stored_number(const CodeView &code, const LibrarySymbol &get_version);

// Whether a getter (ncclCommUserRank and the like) reads an int at this offset of a structure.
bool reads_int_at(const CodeView &code, const LibrarySymbol &getter, std::uint64_t offset_bytes);

// Whether a function adds to what it keeps at this offset, in memory or by loading and storing
// through one register; not so if it only stores there.
bool adds_at(const CodeView &code, const LibrarySymbol &function, std::uint64_t offset_bytes);

} // namespace collwire::nccl
