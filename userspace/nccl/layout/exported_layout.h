// SPDX-License-Identifier: Apache-2.0
// API-only layouts, for builds whose memory cannot be read: the functions that NCCL exports, whose
// arguments nccl.h fixes, and the few fields of a communicator that they return.
#pragma once

#include <string_view>

#include "userspace/nccl/layout/library_layout.h"
#include "userspace/nccl/library/library_file.h"

namespace collwire::nccl {

// Turns the layout of a file that would not be recorded (`not_recorded`) into an API-only one: the
// reason moves to `calls_only`. What `inspect` reads stays, if the file has it. No change if the
// exported functions cannot be read, either.
void add_exported_functions(const LibraryFile &file, LibraryLayout &layout);

// For a recording of an API-only file: removes what only `inspect` reads.
void keep_exported(LibraryLayout &layout);

// True for functions whose probes emit calls, or the start and end of a communicator.
bool is_exported_call(std::string_view function);

} // namespace collwire::nccl
