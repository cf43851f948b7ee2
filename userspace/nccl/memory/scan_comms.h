// SPDX-License-Identifier: Apache-2.0
// Communicators of a process whose NCCL keeps no list of them: before 2.24, or with RAS switched
// off.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "userspace/nccl/layout/library_layout.h"
#include "userspace/process/process_view.h"

namespace collwire::nccl {

struct ScannedComms {
    std::vector<std::uint64_t> addresses;
    bool is_cut = false; // the time was over, or there was more memory than is looked at
};

// Whether this NCCL marks its communicators: 2.21 and later.
bool can_scan(const LibraryLayout &layout);

// Looks through the memory of its own that a process has (heap, anonymous mappings), as far as it
// is there: a page that was never touched, or is swapped out, is left as it is. A communicator
// begins and ends with a number that nothing else has. Where malloc puts what is large is looked
// at first, all else only if nothing is there.
ScannedComms scan_comms(const ProcessView &process, const LibraryLayout &layout,
                        std::chrono::steady_clock::time_point until);

} // namespace collwire::nccl
