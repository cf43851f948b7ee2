// SPDX-License-Identifier: Apache-2.0
// Searches the memory of a process for communicators, if its NCCL keeps no list of them: before
// 2.24, or with RAS switched off.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "userspace/nccl/layout/library_layout.h"
#include "userspace/process/process_view.h"

namespace collwire::nccl {

struct ScannedComms {
    std::vector<std::uint64_t> addresses;
    bool is_cut = false; // there was no time, or more memory than is searched
};

// Whether this NCCL marks its communicators: 2.21 and later.
bool can_scan(const LibraryLayout &layout);

// Searches the private memory of a process (heap, anonymous mappings). Pages that are not present,
// untouched or swapped out, stay so. A communicator starts and ends with a unique number. The
// places where glibc's malloc puts large objects are searched first, then its heaps, the rest only
// if they have no communicator. The first are searched even if it is later than `until`.
ScannedComms scan_comms(const process::ProcessView &process, const LibraryLayout &layout,
                        std::chrono::steady_clock::time_point until);

} // namespace collwire::nccl
