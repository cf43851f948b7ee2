// SPDX-License-Identifier: Apache-2.0
// What earlier recordings with limits left in a directory: a later one counts it against its own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "userspace/capture/storage.h"

namespace collwire::capture {

struct OlderSegment {
    std::string name;
    std::uint64_t size_bytes = 0;
    std::uint64_t start_realtime_ns = 0;
};

// The oldest first: files that have a name as this host's captures have, say in their node record
// that they are this host's and were recorded with --keep or --max (CW_NODE_ROTATES), and that
// nobody writes to. Everything else is left out: it is not ours to delete.
[[nodiscard]] std::vector<OlderSegment> find_older_segments(Storage &storage,
                                                            std::string_view host);

} // namespace collwire::capture
