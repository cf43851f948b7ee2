// SPDX-License-Identifier: Apache-2.0
// What is known of one interval of a recording, as rows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "correlate/rows/interval_rows.h"

namespace collwire::intervals {

// The collectives of a communicator at both ends of an interval. Its ranks may call one on both
// sides of a bound: then both intervals have it.
struct Edges {
    // The numbers of the first and the last one; last < first: not known. Those that count from the
    // communicator's creation are not compared with NCCL's own count.
    std::uint64_t first_seq = 1, last_seq = 0;
    bool is_from_creation = false;
    // Else those that not all ranks called: before the first one that all called, and after the
    // last one.
    std::uint64_t at_begin = 0, at_end = 0;

    [[nodiscard]] bool is_numbered() const { return first_seq <= last_seq; }
};
// How many collectives of the earlier interval the later one has, too.
[[nodiscard]] std::uint64_t count_shared(const Edges &earlier, const Edges &later);

struct Interval {
    rows::IntervalRow row;
    std::vector<rows::IntervalTierRow> tiers;
    std::vector<rows::IntervalPortRow> ports;
    std::vector<rows::IntervalCommRow> comms;
    std::vector<Edges> edges; // of each of comms
    std::string late_label;   // the communicator of the late rank, for people; empty: none is late
    // Of the whole recordings: their counts do not show when.
    std::uint64_t lost_records = 0;
};

} // namespace collwire::intervals
