// SPDX-License-Identifier: Apache-2.0
// A plan of a stripped file of which nothing was kept: with the layouts of another build.
#pragma once

#include "userspace/nccl/library_file.h"
#include "userspace/nccl/plan.h"

namespace collwire::nccl {

// Whose layouts they are. Of 20 official builds, from 2.18.3 to 2.32.3, those that have
// communicators of one size have all layouts in common: 2.26.2 and 2.26.5, 2.27.3 and 2.27.7.
enum class Lender {
    SameVersion,  // another build of it
    PatchRelease, // of another version with the same major and minor number; 2.21 and later
};

// `other`: a plan of a build that has its DWARF. Functions are found in the file's own code, and so
// are its variables. BadInput, with what does not fit: another version, exported getters that read
// elsewhere than `other` says, communicators of another size, code that does not begin as it must,
// functions that are not found. No capability of it is exact.
Result<Plan> borrow_plan(const LibraryFile &file, const Plan &other,
                         Lender lender = Lender::SameVersion);

// By ncclGetVersion. False, too, where one of them does not tell.
bool can_lend(const LibraryFile &to, const LibraryFile &of, Lender lender);

} // namespace collwire::nccl
