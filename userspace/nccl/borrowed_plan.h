// SPDX-License-Identifier: Apache-2.0
// A plan of a stripped file of which nothing was kept: with the layouts of another build of the
// same version.
#pragma once

#include "userspace/nccl/library_file.h"
#include "userspace/nccl/plan.h"

namespace collwire::nccl {

// `other`: a plan of a build that has its DWARF. Functions are found in the file's own code, and so
// are its variables. BadInput, with what does not fit: another version, exported getters that read
// elsewhere than `other` says, code that does not begin as it must, functions that are not found.
// No capability of it is exact.
Result<Plan> borrow_plan(const LibraryFile &file, const Plan &other);

// By ncclGetVersion. False, too, where one of them does not tell.
bool is_same_version(const LibraryFile &a, const LibraryFile &b);

} // namespace collwire::nccl
