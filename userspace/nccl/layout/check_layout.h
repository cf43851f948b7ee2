// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string_view>

#include "userspace/nccl/layout/library_layout.h"
#include "userspace/nccl/library/library_file.h"

namespace collwire::nccl {

// Exported functions that each read one int of a communicator, and which: their code is the truth.
struct Getter {
    std::string_view function;
    std::string_view field; // "type.field"
};
inline constexpr std::array<Getter, 3> GETTERS{{
    {"ncclCommUserRank", "ncclComm.rank"},
    {"ncclCommCount", "ncclComm.nRanks"},
    {"ncclCommCuDevice", "ncclComm.cudaDev"},
}};

// Whether a layout that was made of another copy of a file is right for this one, which has been
// stripped since: the same build-id, its instructions where the layout has probes, its functions
// beginning where the layout says (if it has a table for exceptions), its exported getters reading
// where the layout says. BadInput, with what differs, if it is not.
Result<void> check_layout(const LibraryLayout &layout, const LibraryFile &file);

// Of these alone the functions, of a layout that was made with a debug file.
Result<void> check_entries(const LibraryLayout &layout, const LibraryFile &file);

// Only the last of these, of any layout.
Result<void> check_getters(const LibraryLayout &layout, const LibraryFile &file);

} // namespace collwire::nccl
