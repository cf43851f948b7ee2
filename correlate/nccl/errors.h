// SPDX-License-Identifier: Apache-2.0
// Errors: NCCL's own messages, and queue pairs that no longer carry data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "correlate/nccl/gathered.h"

namespace collwire::nccl {

enum class ErrorKind : std::uint8_t {
    Ended,      // a rank's process exited without destroying its communicators
    QueuePairs, // from one rank to one other
    Result,     // NCCL reported a failure; its place is not known
    Warning,    // NCCL warned and, as far as is known, continued
};

// Among the errors of one communicator.
enum class ErrorOrder : std::uint8_t {
    Unknown, // as early as others, within the polling interval
    First,
    Follows,
};

struct NcclError {
    ErrorKind kind = ErrorKind::Warning;
    ErrorOrder order = ErrorOrder::Unknown;
    Index session = NONE;
    std::uint32_t tgid = 0;
    Index instance = NONE;   // the rank of a communicator; NONE: not known
    std::vector<Index> also; // for an exited process: its ranks of other communicators
    // Likewise: ranks of `instance`'s communicator that were in an operation later.
    std::vector<std::int32_t> waiting;
    Index link = NONE; // its connection to the other end
    // By the host's clock: it happened after the first, if that is not 0, and not after the second.
    std::uint64_t after_ns = 0;
    std::uint64_t time_ns = 0;
    std::uint64_t noticed_ns = 0;       // queue pairs: when NCCL kept the result; 0: it did not
    bool was_there = false;             // at the recording's first poll
    std::vector<Index> qps;             // in Model; for an exited process: the ones it destroyed
    bool is_destroyed = false;          // the queue pairs; else they are in an error state
    std::optional<std::uint32_t> event; // the event that reported it first: enum ib_event_type
    bool is_pair = false;               // the operation is a pair
    Index operation = NONE;             // that failed
    // The operation was in flight; else it is the last one launched on the connection.
    bool is_under_way = false;
    std::uint32_t result = 0; // ncclResult_t; 0: not known
    std::uint32_t tid = 0;    // 0: not known
    std::uint32_t line = 0;   // in the NCCL source; 0: not known
    std::string file;
    std::string text;                    // NCCL's; empty: not known
    std::optional<std::uint32_t> status; // of a completion, from the text: enum ibv_wc_status
};

} // namespace collwire::nccl
