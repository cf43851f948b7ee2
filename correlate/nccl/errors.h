// SPDX-License-Identifier: Apache-2.0
// What went wrong: in NCCL's own words, and queue pairs that carry nothing any more.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "correlate/nccl/gathered.h"

namespace collwire::nccl {

enum class ErrorKind : std::uint8_t {
    Ended,      // a rank's process, without ending its communicators
    QueuePairs, // of one rank, to one other
    Result,     // NCCL gave up: no more is known of where
    Warning,    // NCCL said it, and went on as far as is known
};

// Among those of one communicator.
enum class ErrorOrder : std::uint8_t {
    Unknown, // as early as others, as far as was looked
    First,
    Follows,
};

struct NcclError {
    ErrorKind kind = ErrorKind::Warning;
    ErrorOrder order = ErrorOrder::Unknown;
    Index session = NONE;
    std::uint32_t tgid = 0;
    Index instance = NONE;   // the rank of a communicator; NONE: not known
    std::vector<Index> also; // of a process that ended: its ranks of other communicators
    // The same: ranks of `instance`'s communicator that were seen in an operation later on.
    std::vector<std::int32_t> waiting;
    Index link = NONE; // its connection to the other end
    // By the host's clock: it happened after the first, where that is not 0, and not later than the
    // second.
    std::uint64_t after_ns = 0;
    std::uint64_t time_ns = 0;
    bool was_there = false;             // when the recording looked for it first
    std::vector<Index> qps;             // in Model; of a process that ended: what it took with it
    bool is_destroyed = false;          // the queue pairs; else they are in an error state
    std::optional<std::uint32_t> event; // that said so first: enum ib_event_type
    bool is_pair = false;               // of the operation
    Index operation = NONE;             // that it was at
    // That was seen under way; else it was the last one launched on the connection.
    bool is_under_way = false;
    std::uint32_t result = 0; // ncclResult_t; 0: not known
    std::uint32_t tid = 0;    // 0: not known
    std::uint32_t line = 0;   // of NCCL's source; 0: not known
    std::string file;
    std::string text;                    // NCCL's; empty: not known
    std::optional<std::uint32_t> status; // of a completion, by the text: enum ibv_wc_status
};

} // namespace collwire::nccl
