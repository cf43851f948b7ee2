// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "userspace/nccl/layout/library_layout.h"
#include "userspace/nccl/library/debug_file.h"
#include "userspace/nccl/library/library_file.h"
#include "userspace/nccl/library/reader_process.h"

namespace collwire::nccl {

// The layout of a file that defines NCCL's functions. BadInput if it does not, or is not a library.
// Reads in the calling process: use layout_of_file() for untrusted files. `debug`: a file with its
// symbols and types and the same build-id.
Result<LibraryLayout> make_layout(const LibraryFile &file, const LibraryFile *debug = nullptr);

// The same in a child process (reader_process.h). Errors name the path; Failed: it could not be
// read in time, another try may do. If the file was stripped, its debug file, a saved layout or
// another build is searched in `places`. `with_code`: of a whole file also LibraryLayout::code,
// which takes about a second.
Result<LibraryLayout> layout_of_file(const std::string &path, const DebugPlaces &places = {},
                                     bool with_code = false, const ReaderTimes &times = {});

} // namespace collwire::nccl
