// SPDX-License-Identifier: Apache-2.0
// Whether two queue pairs can be the ends of one connection, by numbers, sequence numbers and
// times.
#pragma once

#include <cstddef>
#include <cstdint>

#include "correlate/model/model.h"

namespace collwire::model {

// For one address or number; with more of them the right one cannot be determined.
inline constexpr std::size_t MAX_CANDIDATES = 16;
// Limit of the search: numbers that are reused often must not make it slow.
inline constexpr std::size_t MAX_LOOKED_AT = 256;
inline constexpr std::uint32_t PSN_MASK = 0xffffff; // the packet header's field width
// Undisciplined clocks differ by seconds. Addresses and numbers identify the connection; times only
// have to be from the same run.
inline constexpr std::uint64_t SKEW_UNKNOWN_NS = 60'000'000'000;

struct Life {
    std::uint64_t begin_ns; // Host::rough_realtime_ns
    std::uint64_t end_ns;
};

// As far as its recording covers it.
[[nodiscard]] Life life_of(const Model &model, const Qp &qp);
// The two lives are more than `slack_ns` apart.
[[nodiscard]] bool are_apart(const Life &a, const Life &b, std::uint64_t slack_ns);
// The two ends of a connection agree on the first packet sequence numbers. A pre-existing queue
// pair has advanced them, so they prove nothing.
[[nodiscard]] bool psns_contradict(const Qp &a, const Qp &b);

} // namespace collwire::model
