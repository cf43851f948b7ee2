// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "userspace/nccl/layout/library_layout.h"
#include "userspace/nccl/library/debug_file.h"
#include "userspace/nccl/library/library_file.h"

namespace collwire::nccl {

// Of a file that defines NCCL's functions; BadInput if it does not, or is no library. Reads in the
// calling process: for a file that nobody vouches for use layout_of_file(). `debug`: where its
// symbols and types are, if they are not in the file; of the same build-id.
Result<LibraryLayout> make_layout(const LibraryFile &file, const LibraryFile *debug = nullptr);

// The same in a process of its own, which has no privileges and little time and memory: whatever
// the file does to the reader, it does there. The errors name the path. Where the file was
// stripped, its debug file is looked for in `places`.
Result<LibraryLayout> layout_of_file(const std::string &path, const DebugPlaces &places = {});

} // namespace collwire::nccl
