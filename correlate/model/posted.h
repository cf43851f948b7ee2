// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collwire/post_records.h"
#include "correlate/model/model.h"

namespace collwire::model {

// What the work requests of one queue pair put on the wire.
struct PostedBytes {
    std::uint64_t tx_payload_bytes = 0;   // SEND and WRITE
    std::uint64_t read_payload_bytes = 0; // READ, and 8 a piece for atomics: the peer sends them
    // Frames that this queue pair sends for them; null: path MTU, address or kind not known.
    Known request_wire_bytes;
    // Frames that the peer answers READ and ATOMIC with; acknowledgements are not in it.
    Known response_wire_bytes;
    bool assumed_ipv4 = false; // datagrams: their addresses were not seen
};

// Of SEND and WRITE.
[[nodiscard]] std::uint64_t posted_payload_bytes(const cw_post_counters &posts);
// `port` may be null: not known.
[[nodiscard]] PostedBytes posted_bytes(const Qp &qp, const Port *port,
                                       const cw_post_counters &posts);

} // namespace collwire::model
