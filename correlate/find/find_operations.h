// SPDX-License-Identifier: Apache-2.0
// The operations in captures that a line of PyTorch's watchdog can be about.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "correlate/find/watchdog_line.h"
#include "correlate/model/model.h"

namespace collwire::find {

enum class Ended : std::uint8_t { Yes, No, Unknown };

struct RankState {
    std::int32_t rank = -1;
    std::string host;
    std::uint32_t pid = 0;
    // On one clock for all hosts, CLOCK_REALTIME; 0: not, or its host's clock is not known.
    std::uint64_t called_ns = 0, launched_ns = 0;
    // Its call after that of the rank that called first, or what the clocks allow at most if they
    // do not show that it was later. Absent: no call, or nothing ties the clocks together.
    std::optional<std::uint64_t> after_first_ns, after_first_at_most_ns;
    bool has_called = false, has_launched = false;
    Ended ended = Ended::Unknown;
};

// How PyTorch's number and NCCL's order agree.
enum class Position : std::uint8_t {
    Equal,
    Later,       // fits if PyTorch counted several earlier operations as one
    Earlier,     // fits if PyTorch counted more: sends and receives, coalesced groups twice
    NotCompared, // one of them is not known
};

struct FoundOperation {
    model::Index communicator = model::NONE;
    std::string guessed_role;             // of it; empty: none, or it has a name (docs/roles.md)
    bool is_pair = false;                 // a send and its receive
    model::Index operation = model::NONE; // in NcclFacts::collectives, or p2p
    Position position = Position::NotCompared;
    std::vector<std::string> reasons;
    std::vector<RankState> ranks; // recorded ones that take part, by rank
    std::vector<std::int32_t> without_capture;
};

struct FindResult {
    std::vector<FoundOperation> operations; // the best position first
    std::size_t more = 0;                   // fit too, and are not listed
    std::string none;                       // no operation fits: why, of the nearest ones
};

inline constexpr std::size_t MOST_FOUND = 8;

// `model`: after join().
[[nodiscard]] FindResult find_operations(const model::Model &model, const WatchdogLine &line);

} // namespace collwire::find
