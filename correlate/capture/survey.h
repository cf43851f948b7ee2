// SPDX-License-Identifier: Apache-2.0
// The times that a capture covers, from its first block and the headers of the others.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "correlate/capture/reader.h"

namespace collwire::capture {

struct Survey {
    std::uint64_t session_id = 0;
    std::uint32_t segment = 0;
    bool has_node = false; // its first record is a node's; if not, the times are not known
    // CLOCK_REALTIME by the node's first reading of it.
    std::uint64_t begin_ns = 0;
    std::uint64_t end_ns = 0;
};

// Blocks after the first are not read, and not checked. Errors: as read_capture.
[[nodiscard]] Result<Survey> survey(std::uint64_t file_bytes, const ReadAt &read);

} // namespace collwire::capture
