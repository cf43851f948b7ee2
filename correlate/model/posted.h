// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "collwire/post_records.h"
#include "correlate/model/model.h"

namespace collwire::model {

// Bytes that the work requests of one queue pair put on the wire.
struct PostedBytes {
    std::uint64_t tx_payload_bytes = 0;   // SEND and WRITE
    std::uint64_t read_payload_bytes = 0; // READ, and 8 bytes per atomic: the peer sends them
    // Frames of this queue pair for them; null: path MTU, address or kind not known.
    Known request_wire_bytes;
    // The peer's response frames to READ and ATOMIC; excludes acknowledgements.
    Known response_wire_bytes;
    bool assumed_ipv4 = false; // datagrams whose addresses are not recorded
};

// Headers of messages that are one RDMA WRITE each, with immediate data or without.
struct MessageHeaders {
    std::uint64_t packet_bytes = 0;  // of each packet
    std::uint64_t message_bytes = 0; // more, of each message
};
// Absent: path MTU or address not known. `port` may be null.
[[nodiscard]] std::optional<MessageHeaders> message_headers(const Qp &qp, const Port *port,
                                                            bool has_immediate);

// Of SEND and WRITE.
[[nodiscard]] std::uint64_t posted_payload_bytes(const cw_post_counters &posts);
// `port` may be null: not known.
[[nodiscard]] PostedBytes posted_bytes(const Qp &qp, const Port *port,
                                       const cw_post_counters &posts);

} // namespace collwire::model
