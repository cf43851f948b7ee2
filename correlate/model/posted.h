// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "correlate/model/model.h"

namespace collwire::model {

// What the work requests of one queue pair put on the wire.
struct PostedBytes {
    std::uint64_t tx_payload_bytes = 0;   // SEND and WRITE
    std::uint64_t read_payload_bytes = 0; // READ, and 8 a piece for atomics: the peer sends them
    Known
        request_wire_bytes; // frames that this queue pair sends for them; null: path MTU not known
    Known response_wire_bytes; // frames that the peer answers READ and ATOMIC with,
                               // acknowledgements not in
};

// `port` may be null: not known.
[[nodiscard]] PostedBytes posted_bytes(const Qp &qp, const Port *port,
                                       const cw_post_counters &posts);

} // namespace collwire::model
