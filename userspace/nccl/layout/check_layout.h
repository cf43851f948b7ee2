// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string_view>

#include "userspace/nccl/layout/library_layout.h"
#include "userspace/nccl/library/library_file.h"

namespace collwire::nccl {

// Exported functions that each read one int of a communicator. Their code proves the offset.
struct Getter {
    std::string_view function;
    std::string_view field; // "type.field"
};
inline constexpr std::array<Getter, 3> GETTERS{{
    {"ncclCommUserRank", "ncclComm.rank"},
    {"ncclCommCount", "ncclComm.nRanks"},
    {"ncclCommCuDevice", "ncclComm.cudaDev"},
}};

// Whether a layout that was saved from another copy fits this stripped file: the same build-id, the
// same instructions under the probes, the same starts of functions (if the file has an exception
// table), and exported getters that read the same offsets. BadInput, with the difference, if not.
Result<void> check_layout(const LibraryLayout &layout, const LibraryFile &file);

// Checks the starts of functions alone: for a layout that was made with a debug file.
Result<void> check_entries(const LibraryLayout &layout, const LibraryFile &file);

// Checks the exported getters alone: for any layout.
Result<void> check_getters(const LibraryLayout &layout, const LibraryFile &file);

} // namespace collwire::nccl
