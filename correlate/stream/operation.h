// SPDX-License-Identifier: Apache-2.0
// An operation of a communicator, as the stream hands it over.
#pragma once

#include <cstdint>

#include "collwire/nccl_launch_records.h"

namespace collwire::stream {

// Why a figure of an operation may be too small.
enum OperationLack : std::uint8_t {
    LACKS_RANKS = 1 << 0,    // not all ranks called it
    LACKS_BYTES = 1 << 1,    // the bytes of a launch are not known
    HAS_BOUND = 1 << 2,      // bytes of a part are an upper bound
    LACKS_LAUNCH = 1 << 3,   // a call waited for its launch when the operation was closed
    NUMBER_GUESSED = 1 << 4, // a rank joined late, and no launch of it had NCCL's own count
};

struct Operation {
    std::uint64_t number = 0; // of the communicator's collectives, or of a pair's transfers
    std::int32_t source = -1; // of a transfer; -1: a collective
    std::int32_t destination = -1;
    std::uint64_t count = 0;
    std::int32_t root = -1;
    std::int32_t reduction = 0;
    std::uint8_t func = CW_NCCL_FUNC_UNKNOWN;
    std::uint8_t datatype = 0;
    std::uint8_t algorithm = CW_NCCL_ALGORITHM_UNKNOWN;
    std::uint8_t protocol = CW_NCCL_PROTOCOL_UNKNOWN;
    std::uint8_t lacks = 0;  // enum OperationLack
    bool differs = false;    // ranks gave different arguments
    std::uint32_t calls = 0; // of ranks
    std::uint32_t launches = 0;
    std::int32_t last_rank = -1; // that called, by CLOCK_REALTIME
    // CLOCK_REALTIME of each rank's node; 0: none
    std::uint64_t first_call_ns = 0;
    std::uint64_t last_call_ns = 0;
    std::uint64_t first_launch_ns = 0;
    std::uint64_t last_launch_ns = 0;
    // Given to the transports by all ranks: computed from NCCL's operations.
    std::uint64_t payload_bytes = 0;
    std::uint64_t data_bytes = 0; // without flags and padding
    std::uint64_t messages = 0;
};

} // namespace collwire::stream
