// SPDX-License-Identifier: Apache-2.0
// The sizes of the messages of one proxy operation, computed as op_bytes.h computes their sum.
// NET/IB posts each message as one work request for each of its queue pairs, or as two, so packets
// and headers follow from the sizes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "collwire/post_records.h"
#include "correlate/nccl/op_bytes.h"

namespace collwire::nccl {

// How NET/IB posts a message (message_rules.h): the same number of bytes on each of `parts` queue
// pairs, multiples of 128, the last ones less. Each part is an RDMA WRITE with immediate data.
// Where the message has more than `apart_above_bytes`, it is a plain one, and the immediate data
// follows with an empty one.
struct MessageRules {
    std::uint32_t parts = 1;
    std::uint64_t apart_above_bytes = UINT64_MAX;

    bool operator==(const MessageRules &) const = default;
};

// What the messages of operations are on the wire, before headers.
struct MessagePackets {
    std::uint64_t messages = 0;
    std::uint64_t with_immediate = 0;                    // requests
    std::uint64_t plain = 0;                             // requests without immediate data
    std::uint64_t pad_bytes = 0;                         // to multiples of 4
    std::array<std::uint64_t, CW_MTU_CLASSES> packets{}; // at path MTUs of 256 << i bytes

    // `count` messages of `bytes` each. An empty request is a packet, too.
    void add(std::uint64_t bytes, std::uint64_t count, const MessageRules &rules = {});

    bool operator==(const MessagePackets &) const = default;
};

// Absent if the size of some message is unknown: where derive_op_bytes() knows no bytes or only a
// bound, registered buffers of collectives, broadcasts of a group, and PAT AllGather with several
// messages of several ranks. The sizes' sum and number are those of derive_op_bytes().
std::optional<MessagePackets> derive_message_packets(const OpFacts &facts,
                                                     const MessageRules &rules = {});

} // namespace collwire::nccl
