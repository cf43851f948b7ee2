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

// Whether a plan that was made of another copy of a file is right for this one, which has been
// stripped since: the same build-id, its instructions where the plan has probes, its functions
// beginning where the plan says (if it has a table for exceptions), its exported getters reading
// where the plan says. BadInput, with what differs, if it is not.
Result<void> check_plan(const Plan &plan, const LibraryFile &file);

// Of these alone the functions, of a plan that was made with a debug file.
Result<void> check_entries(const Plan &plan, const LibraryFile &file);

// Only the last of these, of any plan.
Result<void> check_getters(const Plan &plan, const LibraryFile &file);

} // namespace collwire::nccl
