// SPDX-License-Identifier: Apache-2.0
// The queue pairs of a process that are NCCL's, as far as NCCL's memory has shown them.
#pragma once

#include <cstdint>
#include <vector>

namespace collwire::source {

// Addresses are those of the process: struct ibv_qp, ncclConnector.
struct NcclSender {
    std::uint64_t connection = 0;
    std::uint64_t steps_at = 0;             // its count of steps
    std::vector<std::uint64_t> queue_pairs; // that carry its data
};

struct NcclQueuePairs {
    // The bytes of all its connections follow from NCCL's operations, to the byte, and their
    // headers from the sizes of messages.
    bool are_derived = false;
    std::vector<std::uint64_t> addresses; // of all its queue pairs, sorted
    std::vector<NcclSender> senders;
};

} // namespace collwire::source
