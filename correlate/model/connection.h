// SPDX-License-Identifier: Apache-2.0
// What tells whether two queue pairs can be the ends of one connection: numbers, sequence numbers
// and times.
#pragma once

#include <cstddef>
#include <cstdint>

#include "correlate/model/model.h"

namespace collwire::model {

// Of one address or number; beyond it cannot be told which is meant.
inline constexpr std::size_t MAX_CANDIDATES = 16;
// In the search for them: numbers that are used again and again must not make it slow.
inline constexpr std::size_t MAX_LOOKED_AT = 256;
inline constexpr std::uint32_t PSN_MASK = 0xffffff; // what the packet header has room for
// Clocks that nobody disciplines are apart by seconds. Addresses and numbers say that the two
// belong together; times only have to be of the same run.
inline constexpr std::uint64_t SKEW_UNKNOWN_NS = 60'000'000'000;

struct Life {
    std::uint64_t begin_ns; // realtime
    std::uint64_t end_ns;
};

// As far as its recording saw it.
[[nodiscard]] Life life_of(const Model &model, const Qp &qp);
// No moment of one is within `slack_ns` of the other.
[[nodiscard]] bool are_apart(const Life &a, const Life &b, std::uint64_t slack_ns);
// The first packet sequence numbers of a connection are agreed by its two ends. Of a queue pair
// that was there before the recorder they have moved on, and tell nothing.
[[nodiscard]] bool psns_contradict(const Qp &a, const Qp &b);

} // namespace collwire::model
