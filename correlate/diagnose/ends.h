// SPDX-License-Identifier: Apache-2.0
// Both ends of a communicator's connections, as its ranks' inspections report them.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <vector>

#include "correlate/diagnose/diagnosis.h"

namespace collwire::diagnose {

// A direction between two ranks.
struct Way {
    std::int32_t from = -1, to = -1, channel = -1, conn_index = -1;
    auto operator<=>(const Way &) const = default;
};

struct End {
    const inspect::Operation *operation = nullptr;
    const inspect::Transfer *transfer = nullptr;
};

struct Ends {
    std::map<Way, std::vector<End>> sends, receives; // started ones
    // Steps, on connections with no operation in flight.
    std::map<Way, std::uint64_t> sent, received;
};

// `comm` must outlive the result.
[[nodiscard]] Ends ends_of(const Communicator &comm);

// NCCL counts a connection's steps alike at both ends: operations with a common step overlap.
[[nodiscard]] bool are_in_one_place(const End &send, const End &receive);

} // namespace collwire::diagnose
