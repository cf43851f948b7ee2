// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "userspace/nccl/library_file.h"
#include "userspace/nccl/plan.h"

namespace collwire::nccl {

// Of a file that defines NCCL's functions; BadInput if it does not, or is no library. Reads in the
// calling process: for a file that nobody vouches for use plan_of_file().
Result<Plan> make_plan(const LibraryFile &file);

// The same in a process of its own, which has no privileges and little time and memory: whatever
// the file does to the reader, it does there. The errors name the path.
Result<Plan> plan_of_file(const std::string &path);

} // namespace collwire::nccl
