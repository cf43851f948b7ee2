// SPDX-License-Identifier: Apache-2.0
// What is left of a build whose memory cannot be read: the functions that NCCL exports, whose
// arguments nccl.h fixes, and the few fields of a communicator that they hand on.
#pragma once

#include <string_view>

#include "userspace/nccl/layout/library_layout.h"
#include "userspace/nccl/library/library_file.h"

namespace collwire::nccl {

// Turns the layout of a file that would not be recorded (`not_recorded`) into one of its exported
// functions: `calls_only` has the reason then. Leaves it as it is where these cannot be read,
// either.
void add_exported_functions(const LibraryFile &file, LibraryLayout &layout);

// One of the functions whose probes tell of calls, or of the making and the end of a communicator.
bool is_exported_call(std::string_view function);

} // namespace collwire::nccl
