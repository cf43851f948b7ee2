// SPDX-License-Identifier: Apache-2.0
// The intervals of a recording, and what is one thing in two of them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "correlate/intervals/interval.h"

namespace collwire::intervals {

struct Bounds {
    std::uint64_t begin_ns = 0, end_ns = 0; // CLOCK_REALTIME; half open
};

inline constexpr std::uint64_t LEAST_EVERY_NS = 1'000'000'000;
inline constexpr std::uint64_t MOST_INTERVALS = 10'000;

// Intervals of `every_ns`, whose bounds are multiples of it, so that UTC shows round times: the
// first and the last one may be shorter, or, in place of less than 2 s, longer. Usage: an interval
// is too short, or there are too many.
[[nodiscard]] Result<std::vector<Bounds>> divide(const Bounds &whole, std::uint64_t every_ns);

// Takes intervals in the order of time.
class Sequence {
public:
    // Numbers it, and takes collectives from it that the one before has counted.
    void add(Interval &interval);

private:
    using Comm = std::pair<std::string, std::uint64_t>; // hash, ranks
    std::uint64_t next_ = 0;
    std::map<Comm, Edges> before_; // where it last had operations
};

} // namespace collwire::intervals
