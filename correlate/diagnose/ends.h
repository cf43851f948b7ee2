// SPDX-License-Identifier: Apache-2.0
// Both ends of the connections of a communicator, as its ranks tell of them.
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
    std::map<Way, std::vector<End>> sends, receives; // that are begun
    // Steps, where nothing is under way.
    std::map<Way, std::uint64_t> sent, received;
};

// `comm` must outlive what is returned.
[[nodiscard]] Ends ends_of(const Communicator &comm);

// NCCL counts the steps of a connection alike at both ends: operations that have a step in common
// are in one place.
[[nodiscard]] bool are_in_one_place(const End &send, const End &receive);

} // namespace collwire::diagnose
