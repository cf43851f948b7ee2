// SPDX-License-Identifier: Apache-2.0
// A line of PyTorch's NCCL watchdog, or an entry of its flight recorder, as a user pastes it.
//
// Sources: the texts of ProcessGroupNCCL.cpp and FlightRecorder of PyTorch 1.12 to 2.9.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace collwire::find {

struct WatchdogLine {
    std::string op_type;                     // PyTorch's word, "_ALLGATHER_BASE"; empty: none
    std::optional<std::uint64_t> seq;        // counts from 1 in the process group
    std::optional<std::int32_t> rank;        // in the process group
    std::optional<std::int32_t> global_rank; // of the log's own prefix: [rank3]
    std::optional<std::uint64_t> numel_in, numel_out; // elements
    std::string group; // id and name of the process group as they stand there; empty: none
    // It says that the operation had not ended.
    bool is_unfinished = false;
    // `seq` counts sends and receives only.
    bool is_p2p_seq = false;
};

// Takes the words that it knows, in any order and of any version; what is around them is passed
// over. BadInput: neither an operation's name nor its number is in the text.
[[nodiscard]] Result<WatchdogLine> parse_watchdog_line(std::string_view text);

} // namespace collwire::find
