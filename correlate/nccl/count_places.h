// SPDX-License-Identifier: Apache-2.0
// Maps NCCL's n-th counted collective to its number, learned from placed ranks. Collectives that
// NCCL does not count have a number too, so positions that no placed rank recorded are absent.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "correlate/nccl/call_sequence.h"

namespace collwire::nccl {

class CountPlaces {
public:
    struct Place {
        std::uint64_t position = 0; // by NCCL's count
        std::uint64_t seq = 0;
        std::uint64_t signature = 0;
    };

    // The first `n_items` of a rank, the first of which has number `seq`. Adds only new positions.
    void add(const CallSequence &of, std::uint32_t n_items, std::uint64_t seq);
    [[nodiscard]] const Place *find(std::uint64_t position) const;
    [[nodiscard]] bool ends_before(std::uint64_t counted) const {
        return places_.empty() || places_.back().position + 1 < counted;
    }
    // The number of the first item, from all known positions of the first `n_items`. Absent if
    // there are none or they disagree.
    [[nodiscard]] Known seq_of(const CallSequence &of, std::uint32_t n_items) const;

private:
    std::deque<Place> places_; // by position
};

} // namespace collwire::nccl
